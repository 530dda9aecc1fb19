"""Binding leaves nothing open, keeps what was said, and believes its measurements."""

import math
from collections.abc import Sequence

import pytest

from manyhands.config import Config, with_values
from manyhands.data.dataset import Dataset
from manyhands.data.load import load
from manyhands.data.schema import DataOptions
from manyhands.errors import PlanError
from manyhands.machine.detect import detect
from manyhands.plan.options import OPTIONS
from manyhands.plan.plan import Plan
from manyhands.plan.spec import parse
from manyhands.train import autotune
from manyhands.train.plan_constraints import resolve
from manyhands.train.step_timing import Trial, measure

CONFIG = with_values(Config(), {"model.width": 0.25, "train.batch_size": 16})
ONE_DEVICE = (
    "device",
    "precision",
    "layout",
    "allocator",
    "kernels",
    "compile",
    "capture",
    "feed",
    "workers",
    "threads",
)


@pytest.fixture
def images() -> Dataset:
    return load("synthetic:1x12x12,4", DataOptions(size=200))


class Stopwatch:
    """Stands in for the measuring of steps: a fixed time for each option."""

    def __init__(self, **milliseconds: float) -> None:
        self.milliseconds, self.asked = milliseconds, 0

    def __call__(self, config: Config, plans: Sequence[Plan], dataset: Dataset) -> list[Trial]:
        self.asked += len(plans)
        return [
            Trial(plan, math.prod(self.milliseconds.get(str(v), 1) for v in plan.said().values()), 1) for plan in plans
        ]


def bound(words: str, dataset: Dataset, watch: Stopwatch, config: Config = CONFIG) -> Plan:
    machine = detect()
    return autotune.autotune(resolve(parse(words), config, machine), config, dataset, machine, watch)[0]


@pytest.mark.parametrize("words", ["plain", "serial", "plain,workers=2", "serial,precision=fp32,compile=off"])
def test_nothing_is_left_open_and_what_was_said_stays(images: Dataset, words: str) -> None:
    plan = bound(words, images, Stopwatch())
    assert all(getattr(plan, name) is not None for name in ONE_DEVICE)
    assert parse(words).said().items() <= plan.said().items()
    assert set(ONE_DEVICE) <= set(OPTIONS)


@pytest.mark.parametrize(
    ("watch", "precision", "layout"),
    [
        (Stopwatch(fp32=2.0, contiguous=2.0), "bf16", "channels_last"),
        (Stopwatch(bf16=2.0, contiguous=2.0), "fp32", "channels_last"),
        (Stopwatch(bf16=2.0, channels_last=2.0), "fp32", "contiguous"),
        (Stopwatch(bf16=math.inf), "fp32", "channels_last"),
    ],
)
def test_the_fastest_is_taken(images: Dataset, watch: Stopwatch, precision: str, layout: str) -> None:
    plan = bound("serial", images, watch)
    assert (plan.precision, plan.layout, plan.compile) == (precision, layout, "off")


def test_compiling_is_tried_only_where_it_can_be_repaid(images: Dataset) -> None:
    """1 s a step over 36 steps is too short; over 40,000 steps it is not, and then the measurement decides."""
    long = with_values(CONFIG, {"train.epochs": 3000})
    assert bound("serial", images, Stopwatch(cpu=1000.0, on=0.5)).compile == "off"
    assert bound("serial", images, Stopwatch(cpu=1000.0, on=0.5), long).compile == "on"
    assert (
        bound("serial", images, Stopwatch(cpu=1001.0, on=2.0), with_values(long, {"train.epochs": 3001})).compile
        == "off"
    )


def test_a_search_is_remembered(images: Dataset) -> None:
    watch = Stopwatch(bf16=2.0)
    first = bound("serial", images, watch)
    asked = watch.asked
    assert asked > 0
    assert bound("serial", images, watch) == first
    assert watch.asked == asked


def test_plain_is_what_torch_does_by_default(images: Dataset) -> None:
    plan = bound("plain", images, Stopwatch())
    assert (plan.precision, plan.allocator, plan.kernels, plan.feed, plan.workers) == (
        "fp32",
        "default",
        "torch",
        "loader",
        0,
    )


def test_a_real_measurement(images: Dataset) -> None:
    plans = [parse(f"serial,device=cpu,precision={each},feed=device") for each in ("fp32", "bf16")]
    trials = measure(CONFIG, plans, images)
    assert [trial.plan for trial in trials] == plans
    assert all(0 < trial.step_ms < math.inf for trial in trials)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("server:2+1,device=cuda", "cannot run yet"),
        ("auto", "is to be found first"),
        ("serial,capture=on", "only a GPU"),
        ("serial,workers=2", "is for feed=loader"),
    ],
)
def test_what_cannot_run_is_refused(images: Dataset, words: str, told: str) -> None:
    with pytest.raises(PlanError, match=told):
        bound(words, images, Stopwatch())


def test_no_gpu_no_cuda(images: Dataset) -> None:
    if detect().gpus:
        pytest.skip("this machine has a GPU")
    with pytest.raises(PlanError, match="there is no GPU"):
        bound("serial,device=cuda", images, Stopwatch())


def test_affinity(images: Dataset) -> None:
    core = detect().cores[0].id
    plan = bound("serial", images, Stopwatch(), with_values(CONFIG, {"cpu.affinity": str(core)}))
    assert (plan.cores, plan.threads) == (((core,),), 1)
    with pytest.raises(PlanError, match="this machine has"):
        bound("serial", images, Stopwatch(), with_values(CONFIG, {"cpu.affinity": "0,999"}))
