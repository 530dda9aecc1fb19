"""Orders of micro-batches: as drawn, free of deadlocks, as idle as the formulas say, as few in flight as promised."""

from fractions import Fraction
from itertools import accumulate, pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manyhands.errors import PlanError
from manyhands.plan import pipeline_schedule as module
from manyhands.plan.pipeline_schedule import (
    SCHEDULES,
    Action,
    activations_in_flight,
    begins,
    bubble,
    orders,
    stages_per_device,
)

MANY = [(devices, microbatches) for devices in range(1, 8) for microbatches in range(1, 25)]

GPIPE = """
0123......aabbccdd
.0123...aabbccdd..
..0123aabbccdd....
"""
ONE_F_ONE_B = """
012....aa3bb.cc.dd
.01..aa2bb3cc.dd..
..0aa1bb2cc3dd....
"""
ZERO_BUBBLE = """
012..aA3bBcCdD
.01.a2bA3cBdCD
..0a1b2cA3dBCD
"""
INTERLEAVED = """
01452.ee3ff6aa7bb.gg.hhccdd
.014ee5ff2aa3bb6gg7hhccdd..
"""
# Three micro-batches on two devices: one group of three, since one of two would leave one of one.
UNEVEN = """
012345.dd.ee.ffaabbcc
.0123dd4ee5ffaabbcc..
"""
FEW = """
0......aa
.0...aa..
..0aa....
"""
ALONE = """
0aa1bb2cc
"""


def needs(action: Action, stages: int) -> list[Action]:
    """What must have been done before, by whichever device."""
    kind, microbatch, stage = action
    if kind == "forward":
        return [Action("forward", microbatch, stage - 1)] if stage else []
    if kind == "weights":
        return [Action("backward", microbatch, stage)]
    after = [Action("backward", microbatch, stage + 1)] if stage + 1 < stages else []
    return [Action("forward", microbatch, stage), *after]


def durations(schedule: str) -> dict[str, int]:
    return {"forward": 1, "backward": 1 if schedule == "zerobubble" else 2, "weights": 1}


def length(schedule: str, begun: dict[Action, int]) -> int:
    return max(at + durations(schedule)[action.kind] for action, at in begun.items())


def drawn(schedule: str, devices: int, microbatches: int) -> str:
    begun, takes = begins(schedule, devices, microbatches), durations(schedule)
    rows = [["."] * length(schedule, begun) for _ in range(devices)]
    letters = {"forward": "0123456789", "backward": "abcdefghij", "weights": "ABCDEFGHIJ"}
    for action, at in begun.items():
        chunk, device = divmod(action.stage, devices)
        letter = letters[action.kind][chunk * microbatches + action.microbatch]
        for column in range(at, at + takes[action.kind]):
            assert rows[device][column] == "."
            rows[device][column] = letter
    return "\n".join(["", *map("".join, rows), ""])


@pytest.mark.parametrize(
    ("schedule", "devices", "microbatches", "drawing"),
    [
        ("gpipe", 3, 4, GPIPE),
        ("1f1b", 3, 4, ONE_F_ONE_B),
        ("zerobubble", 3, 4, ZERO_BUBBLE),
        ("interleaved", 2, 4, INTERLEAVED),
        ("interleaved", 2, 3, UNEVEN),
        ("gpipe", 3, 1, FEW),
        ("1f1b", 3, 1, FEW),
        ("1f1b", 1, 3, ALONE),
    ],
)
def test_as_drawn(schedule: str, devices: int, microbatches: int, drawing: str) -> None:
    assert drawn(schedule, devices, microbatches) == drawing


@pytest.mark.parametrize("drawing", [GPIPE, ONE_F_ONE_B, ZERO_BUBBLE, INTERLEAVED])
def test_the_module_shows_the_same_drawings(drawing: str) -> None:
    for row in drawing.split():
        assert row in (module.__doc__ or "")


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_bubble_is_that_of_the_formula(schedule: str) -> None:
    for devices, microbatches in MANY:
        if microbatches < devices:
            continue
        begun = begins(schedule, devices, microbatches)
        whole = devices * length(schedule, begun)
        work = sum(durations(schedule)[action.kind] for action in begun)
        assert Fraction(whole - work, whole) == bubble(schedule, devices, microbatches), (devices, microbatches)


def test_fewer_bubbles_from_left_to_right() -> None:
    found = [bubble(schedule, 4, 8) for schedule in ("gpipe", "1f1b", "interleaved", "zerobubble")]
    assert found == [Fraction(3, 11), Fraction(3, 11), Fraction(3, 19), Fraction(3, 27)]


def peaks(schedule: str, devices: int, microbatches: int) -> list[int]:
    """For each device, how many activations of a micro-batch on a stage it keeps at most."""
    frees = "weights" if schedule == "zerobubble" else "backward"
    step = {"forward": 1, frees: -1}
    return [
        max(accumulate(step.get(action.kind, 0) for action in order))
        for order in orders(schedule, devices, microbatches)
    ]


def test_micro_batches_in_flight() -> None:
    for devices, microbatches in MANY:
        assert peaks("gpipe", devices, microbatches) == [microbatches] * devices
        some = [min(microbatches, devices - device) for device in range(devices)]
        assert peaks("1f1b", devices, microbatches) == some
        assert peaks("zerobubble", devices, microbatches) == [min(microbatches, devices)] * devices
        for schedule in SCHEDULES:
            each = activations_in_flight(schedule, devices, microbatches)
            assert [sum(each[device::devices]) for device in range(devices)] == peaks(schedule, devices, microbatches)
    # Megatron's, in halves of what 1f1b keeps: 3 D - 1 of them on the first device, where that has D whole ones.
    assert peaks("interleaved", 4, 16) == [2 * (4 - 1 - device) + 4 + 1 for device in range(4)]


@given(st.sampled_from(SCHEDULES), st.integers(1, 12), st.integers(1, 60))
def test_everything_is_done_once_where_it_belongs_and_nothing_waits_for_ever(
    schedule: str, devices: int, microbatches: int
) -> None:
    told = orders(schedule, devices, microbatches)
    kinds = ("forward", "backward", "weights") if schedule == "zerobubble" else ("forward", "backward")
    chunks = stages_per_device(schedule)
    assert len(told) == devices
    for device, order in enumerate(told):
        stages = range(device, chunks * devices, devices)
        assert sorted(order) == sorted(map(Action._make, product(kinds, range(microbatches), stages)))
    begun, takes = begins(schedule, devices, microbatches), durations(schedule)
    for action, at in begun.items():
        assert all(begun[need] + takes[need.kind] <= at for need in needs(action, chunks * devices))
    for order in told:
        assert all(begun[one] + takes[one.kind] <= begun[two] for one, two in pairwise(order))


def test_a_word_that_is_none() -> None:
    with pytest.raises(PlanError, match=r"unknown schedule 'gpip': did you mean 'gpipe'\?"):
        orders("gpip", 2, 2)
