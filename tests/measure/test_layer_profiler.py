"""What becomes of the times that several processes saw."""

import statistics
from collections.abc import Sequence

import pytest

from manyhands.config import Config
from manyhands.machine.detect import detect
from manyhands.machine.link import Link
from manyhands.machine.machine import Machine
from manyhands.measure import layer_profiler
from manyhands.measure.layer_profiler import _jitter, _slower
from manyhands.measure.layer_profiler_worker import in_stretches
from manyhands.plan.plan import Plan
from manyhands.plan.spec import parse
from manyhands.simulate.cost.layer_profile import Profile
from manyhands.simulate.cost.links import Links

LAYERS = {"conv": (5, 9), "norm": (1, 2), "act": (1, 1), "norm@2": (2, 3)}


def test_a_step_without_batch_norms_is_one_stretch() -> None:
    assert in_stretches(LAYERS, set(), 4) == [28]


def test_ranks_wait_in_every_batch_norm_forward_and_backward() -> None:
    assert in_stretches(LAYERS, {"norm"}, 4) == [6, 3, 3, 3, 13]


def test_one_process_waits_for_nobody() -> None:
    assert _slower([[[10], [30]]]) == 1.0


def test_a_step_that_ends_together_is_as_long_as_the_slowest_rank() -> None:
    assert _slower([[[10], [10], [10]], [[20], [20], [20]]]) == pytest.approx(20 / 15)


def test_ranks_that_are_slow_in_turn_wait_more_often() -> None:
    turns = [[[10, 20]] * 3, [[20, 10]] * 3]
    assert _slower(turns) == pytest.approx(40 / 30)
    assert _slower([[[sum(step)] for step in rank] for rank in turns]) == 1.0


def test_steps_that_are_alike_have_no_jitter_and_one_long_step_does_not_decide() -> None:
    assert _jitter([7, 7, 7]) == 0
    assert _jitter([90, 110] * 8) == pytest.approx(0.1, abs=0.002)
    assert _jitter([100] * 15 + [400]) < statistics.pstdev([1] * 15 + [4])


def test_a_few_bytes_take_what_was_measured_and_not_what_a_line_says() -> None:
    points = ((4, 0.002), (64, 0.010), (16384, 0.016), (67108864, 0.115))
    link = Link("gloo", "all_reduce", 16, 3099.0, 0.5, points)
    relays = 8
    assert relays * Links(link, link).level().latency_us == pytest.approx(1e6 * link.seconds(1024))
    assert relays * Links(link, link).level().latency_us > 10_000


def test_layers_are_not_timed_again_for_another_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor for another way over the wire; but for other kernels."""
    asked: list[list[str]] = []

    def take(config: Config, plans: Sequence[Plan], samples: Sequence[int], machine: Machine) -> list[Profile]:
        asked.append([str(plan) for plan in plans])
        return [Profile(2, tuple(samples), {"conv": ((1, 2),)}, (3,), 4, 5) for _ in plans]

    monkeypatch.setattr(layer_profiler, "_take", take)
    machine, config = detect(), Config()
    for words in ("gpipe", "1f1b", "zerobubble"):
        layer_profiler.profiles(config, [parse(f"pipeline:2,schedule={words},kernels=own")], [8], machine)
    assert asked == [["pipeline:2,kernels=own,schedule=gpipe"]]
    layer_profiler.profiles(config, [parse(f"pipeline:2,kernels={each}") for each in ("own", "torch")], [8], machine)
    assert asked[1:] == [["pipeline:2,kernels=torch"]]
    layer_profiler.profiles(
        config, [parse(f"data:2,kernels=own,compress={each}") for each in ("fp16", "bf16")], [8], machine
    )
    assert len(asked[2]) == 1
