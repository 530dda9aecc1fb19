"""loader.workers=auto: as many loader processes as measured fastest, the feed included."""

import json
import math
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from manyhands.config import Config, with_values
from manyhands.data.dataloader_feed import to_tensor
from manyhands.data.dataset import Dataset
from manyhands.data.load import load
from manyhands.data.schema import DataOptions
from manyhands.errors import RunError
from manyhands.machine.detect import detect
from manyhands.machine.machine import Core, Machine
from manyhands.plan.plan import Plan
from manyhands.plan.spec import parse
from manyhands.train import autotune, step_timing
from manyhands.train.plan_constraints import resolve
from manyhands.train.step_timing import Trial, measure_fed

AUTO = with_values(
    Config(), {"model.name": "mlp", "model.width": 0.25, "train.batch_size": 16, "loader.workers": "auto"}
)
FIXED = "precision=fp32,layout=contiguous,compile=off,device=cpu"
EIGHT = Machine("host", "cpu", tuple(Core(n, n, 0, 0) for n in range(8)), 2**34)


@pytest.fixture
def images() -> Dataset:
    return load("synthetic:1x12x12,4", DataOptions(size=200))


class Feeds:
    """Stands in for the measuring of fed steps: milliseconds of a step, and of starting a process, by their number."""

    def __init__(self, *step_ms: float, start_ms: float = 0.0) -> None:
        self.step_ms, self.start_ms = step_ms, start_ms
        self.asked: list[list[int | None]] = []
        self.batches: list[int] = []

    def __call__(self, config: Config, plans: Sequence[Plan], dataset: Dataset) -> list[Trial]:
        self.asked.append([plan.workers for plan in plans])
        self.batches.append(config.train.batch_size)
        return [
            Trial(plan, step_ms, 0 if step_ms == math.inf else step_ms + self.start_ms * (plan.workers or 0), fed=True)
            for plan, step_ms in zip(plans, self.step_ms, strict=False)
        ]


def bound(
    words: str, dataset: Dataset, feeds: Feeds, config: Config = AUTO, machine: Machine = EIGHT
) -> tuple[Plan, list[dict[str, object]]]:
    plan = resolve(parse(words), config, machine)
    return autotune.autotune(plan, config, dataset, machine, measure_fed=feeds)


@pytest.mark.parametrize(
    ("feeds", "workers"),
    [
        (Feeds(9, 8, 6, 4, 5), 4),
        (Feeds(4, 5, 6, 7, 8), 0),
        (Feeds(4, 3.95, 3.94, 3.93, 3.92), 0),  # not worth a process
        (Feeds(4, math.inf, 2, 3, math.inf), 2),
        (Feeds(math.inf, 3, 3, 3, 3), 1),
        # An epoch is 12 steps: 4 processes of 5 ms each to start would cost more than they gain.
        (Feeds(9, 8, 7, 6.5, 6, start_ms=5), 2),
    ],
)
def test_the_fastest_is_taken(images: Dataset, feeds: Feeds, workers: int) -> None:
    plan, told = bound(f"serial,feed=loader,{FIXED}", images, feeds)
    assert plan.workers == workers
    assert feeds.asked == [[0, 1, 2, 4, 8]]
    assert [each["fed"] for each in told] == [True] * 5
    assert json.dumps(told, allow_nan=False)


@pytest.mark.parametrize(
    ("words", "asked", "batch"),
    [
        ("plain,device=cpu", [0, 1, 2, 4, 8], 16),
        ("ddp:2,device=cpu", [0, 1, 2, 4], 8),
        (f"data:2,feed=loader,{FIXED}", [0, 1, 2, 4], 8),
        (f"data:8,feed=loader,{FIXED}", [0, 1], 2),
    ],
)
def test_candidates_fit_the_cores_of_a_rank(images: Dataset, words: str, asked: list[int], batch: int) -> None:
    feeds = Feeds(9, 8, 7, 6, 5)
    plan, _ = bound(words, images, feeds)
    assert feeds.asked == [asked]
    assert feeds.batches == [batch]
    assert plan.workers == asked[-1]


def test_free_cores_are_for_the_loaders(images: Dataset) -> None:
    config = with_values(AUTO, {"cpu.affinity": "0,1"})
    feeds = Feeds(9, 8, 7, 6)
    plan, _ = bound(f"serial,feed=loader,{FIXED}", images, feeds, config)
    assert (plan.cores, plan.loader_cores, plan.threads) == (((0, 1),), ((2, 3, 4, 5, 6, 7),), 2)
    assert feeds.asked == [[0, 1, 2, 4]]
    plain, _ = bound("plain,device=cpu", images, Feeds(9, 8, 7, 6), config)
    assert (plain.cores, plain.loader_cores) == (((0, 1),), None)  # as torch has it


@pytest.mark.parametrize(
    ("words", "workers"),
    [("plain,workers=2,device=cpu", 2), (f"serial,feed=loader,workers=0,{FIXED}", 0), (f"serial,{FIXED}", 0)],
)
def test_nothing_is_measured_where_it_is_said_or_no_loader_feeds(images: Dataset, words: str, workers: int) -> None:
    feeds = Feeds()
    plan, told = bound(words, images, feeds)
    assert (plan.workers, feeds.asked, told) == (workers, [], [])


def test_a_number_is_a_number(images: Dataset) -> None:
    plan, _ = bound("plain,device=cpu", images, Feeds(), with_values(AUTO, {"loader.workers": 3}))
    assert plan.workers == 3


def test_the_choice_is_remembered(images: Dataset) -> None:
    feeds = Feeds(9, 8, 6, 4, 5)
    first = bound("plain,device=cpu", images, feeds)
    assert bound("plain,device=cpu", images, feeds) == first
    assert len(feeds.asked) == 1
    longer = with_values(AUTO, {"train.batch_size": 8})
    assert bound("plain,device=cpu", images, feeds, longer)[0].workers == 4
    assert len(feeds.asked) == 2


def test_a_model_that_does_not_run(images: Dataset) -> None:
    with pytest.raises(RunError, match="does not run"):
        bound("plain,device=cpu", images, Feeds(*[math.inf] * 5))


# From Python 3.12 on; torch's loader forks all the same.
forks = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")


def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_timing, "FED_SECONDS", 0.05)
    monkeypatch.setattr(step_timing, "FED_ROUNDS", 2)


@pytest.mark.long  # by the clock: beside other tests a loader gets ahead of who takes its batches
@forks
def test_a_real_measurement(images: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that sleeps over every sample is slow, two are about half as slow."""
    quick(monkeypatch)
    monkeypatch.setattr("manyhands.data.dataloader_feed.to_tensor", slowly())
    plans = [parse(f"serial,feed=loader,kernels=torch,threads=1,workers={each},{FIXED}") for each in (1, 2)]
    one, two = measure_fed(AUTO, plans, images)
    assert [one.plan, two.plan] == plans
    assert one.fed
    assert one.step_ms > 16 * 10
    assert two.step_ms < 0.9 * one.step_ms


def slowly() -> Any:
    def load_one(picture: Any) -> Any:
        time.sleep(0.01)
        return to_tensor(picture)

    return load_one


@forks
def test_a_trial_leaves_cores_and_numbers_alone(images: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    quick(monkeypatch)
    allowed, state = os.sched_getaffinity(0), torch.get_rng_state()
    plans = [parse(f"serial,feed=loader,kernels=torch,workers={each},{FIXED}") for each in (0, 1)]
    assert all(0 < each.step_ms < math.inf for each in measure_fed(AUTO, plans, images))
    assert os.sched_getaffinity(0) == allowed
    assert torch.equal(torch.get_rng_state(), state)


@forks
def test_train(manyhands: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    quick(monkeypatch)
    said = manyhands(
        "train", "mlp", "--data", "synthetic:1x12x12,4", "--plan", "plain", "--set", "loader.workers=auto",
        "--set", "data.size=400", "--batch-size", 50, "--epochs", 1, "--out", tmp_path / "run", "--json",
    )  # fmt: skip
    assert said.code == 0, said.err
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    tried = [int(each["plan"].partition("workers=")[2].split(",")[0]) for each in record["trials"]]
    assert tried == autotune.worker_counts(parse("plain"), detect())
    assert record["plan"]["workers"] in tried
