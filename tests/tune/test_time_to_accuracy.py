"""Trainings towards a target, and the number of loader processes, in this process."""

from pathlib import Path
from typing import Any

import pytest

from manyhands.comm.ranks.rank_group import Team
from manyhands.config import Config, with_values
from manyhands.data.dataset import Dataset
from manyhands.data.load import load
from manyhands.data.schema import DataOptions
from manyhands.machine.detect import detect
from manyhands.plan.spec import parse
from manyhands.train import step_timing
from manyhands.train.autotune import worker_counts
from manyhands.train.job import assemble
from manyhands.tune import loader_workers_worker, lr_range_worker, time_to_accuracy
from manyhands.tune.child_process import Task
from manyhands.tune.lr_range_test import ladder
from manyhands.tune.time_to_accuracy import pursue

CONFIG = with_values(
    Config(), {"model.name": "mlp", "model.width": 0.25, "train.batch_size": 64, "train.epochs": 2, "optim.lr": 0.01}
)
PLAN = parse("serial,device=cpu,precision=fp32,layout=contiguous,kernels=torch,compile=off,capture=off,feed=device")


@pytest.fixture
def some(shared_home: Path, monkeypatch: pytest.MonkeyPatch) -> Dataset:
    """1,330 samples to train with."""
    monkeypatch.setenv("MANYHANDS_HOME", str(shared_home))
    return load("digits", DataOptions(size=1400, test_size=100))


def task(dataset: Dataset, folder: Path, config: Config = CONFIG, plan: str = "", **details: Any) -> Task:
    return Task(config, parse(plan) if plan else PLAN, details, dataset, Team(), folder)


def test_until_the_target(some: Dataset) -> None:
    chase = pursue(assemble(CONFIG, PLAN, some), CONFIG, target=0.5)
    assert chase.reached
    assert chase.accuracy >= 0.5
    assert all(accuracy < 0.5 for _, accuracy, _ in chase.curve[:-1])
    assert chase.curve[-1][0] == chase.steps < 42
    assert chase.seconds > 0
    assert chase.cost == chase.steps


def test_until_it_cannot_be_better(some: Dataset) -> None:
    chase = pursue(assemble(CONFIG, PLAN, some), CONFIG, target=2.0, most=7)
    assert (chase.steps, chase.reached) == (7, False)
    assert 7 < chase.cost < 14  # worse than one that was there after seven


def test_until_the_end(some: Dataset) -> None:
    chase = pursue(assemble(CONFIG, PLAN, some), CONFIG, target=None)
    assert chase.steps == 42  # 21 batches, twice
    scored = [step for step, _, _ in chase.curve]
    assert scored == [*range(1, 21), 22, 24, 26, 28, 30, 33, 36, 39, 42]


def test_a_rate_far_too_large_ends_it(some: Dataset) -> None:
    config = with_values(CONFIG, {"optim.name": "sgd", "optim.lr": 1e20})
    chase = pursue(assemble(config, PLAN, some), config, target=0.9)
    assert chase.diverged
    assert not chase.reached
    assert chase.steps < 10


def test_rates_are_tried_until_none_is_better(some: Dataset, tmp_path: Path) -> None:
    made = time_to_accuracy.work(task(some, tmp_path, lr=0.002, budget=4, target=0.6))["trials"]
    assert [each["lr"] for each in made[:3]] == pytest.approx([0.002, 0.002 / 3, 0.006])
    assert len(made) == 4
    assert (tmp_path / "done").read_bytes() == b"...."
    assert any(each["reached"] for each in made)
    least = 10**9
    for each in made:
        assert each["steps"] <= least
        least = each["steps"] if each["reached"] else least


def test_the_reference_looks_at_its_gradients(some: Dataset, tmp_path: Path) -> None:
    told = time_to_accuracy.reference(task(some, tmp_path, target=None))
    scales = [scale for _, _, scale in told["curve"] if scale is not None]
    assert len(scales) > 10
    assert all(scale >= 0 for scale in scales)


def test_a_ramp_ends_where_it_blows_up(some: Dataset, tmp_path: Path) -> None:
    config = with_values(CONFIG, {"optim.name": "sgd"})
    told = lr_range_worker.work(task(some, tmp_path, config, rates=[0.01, 0.1, *[1e9] * 50]))
    assert len(told["loss"]) < 50
    assert len(told["lr"]) == len(told["loss"]) + told["diverged"]
    quiet = lr_range_worker.work(task(some, tmp_path, config, rates=ladder()[:20]))
    assert (len(quiet["loss"]), quiet["diverged"]) == (20, False)


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_loaders(some: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_timing, "FED_SECONDS", 0.05)
    monkeypatch.setattr(step_timing, "FED_ROUNDS", 1)
    told = loader_workers_worker.work(task(some, tmp_path, plan="plain,device=cpu"))
    counts = worker_counts(parse("plain"), detect())
    assert [row["workers"] for row in told["table"]] == counts
    assert all(row["samples_per_s"] > 0 for row in told["table"])
    assert told["best"]["workers"] in counts
