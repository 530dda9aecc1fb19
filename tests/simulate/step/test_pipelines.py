"""Pipelines under every schedule: the bubbles of the formulas, the order of the schedule, what is kept in memory."""

from collections.abc import Sequence
from fractions import Fraction
from itertools import groupby

import pytest

from manyhands.graph.graph import Graph, Layer
from manyhands.machine.cluster import Level
from manyhands.plan.pipeline_schedule import SCHEDULES, bubble, orders, stages_per_device
from manyhands.plan.sharding import Split, on
from manyhands.plan.spec import parse
from manyhands.plan.stages import Pipeline, pipeline_of
from manyhands.simulate.step.result import Result, predict
from manyhands.timeline import Event
from simulate.scenes import BATCH, Known, cluster, graph, layer

UNIT = 1_000_000  # of a stage's forward pass of a micro-batch; a transfer takes one nanosecond
NEAR = 1e-4


def chain(stages: int) -> Graph:
    """A layer for each stage, after one that takes nothing: so each has an input gradient."""
    stem = layer("stem", weights=1)
    return graph(stem, *(layer(f"stage {number}", [number], weights=1) for number in range(stages)))


def placed(schedule: str, devices: int) -> list[Split]:
    stages = devices * stages_per_device(schedule)
    return [on(0), *(on(number % devices) for number in range(stages))]


def played(
    schedule: str, devices: int, micro: int, recompute: str = "off", held: int = 0, *, overlap: bool = True
) -> Result:
    """A step of equal stages, 1 forward and 2 backward, over links that take no time."""
    splits = placed(schedule, devices)
    what = chain(len(splits) - 1)
    passes = {each.name: (UNIT * micro, 2 * UNIT * micro) for each in what.layers[1:]} | {"stem": (micro, micro)}
    costs = Known(passes, bytes_of={each.name: held for each in what.layers[1:]})
    plan = parse(f"pipeline:{devices},schedule={schedule},recompute={recompute}")
    free = cluster(devices, Level(1, 1e9, 0.0), overlap=overlap)
    return predict(what, splits, costs, free, BATCH, micro, pipeline_of(plan, splits))


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("devices", "micro"), [(1, 3), (2, 2), (2, 8), (3, 5), (4, 4), (4, 8)])
@pytest.mark.parametrize("overlap", [True, False])
def test_the_bubble_is_that_of_the_formula(schedule: str, devices: int, micro: int, overlap: bool) -> None:
    result = played(schedule, devices, micro, overlap=overlap)
    assert result.idle_fraction == pytest.approx(float(bubble(schedule, devices, micro)), abs=NEAR)
    # The same in time: work and bubbles of one device, in units of a stage.
    work = 3 * micro * stages_per_device(schedule)
    assert result.step_ns == pytest.approx(float(UNIT * work / (1 - bubble(schedule, devices, micro))), rel=NEAR)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_device_keeps_to_the_order_of_the_schedule(schedule: str) -> None:
    devices, micro = 3, 5
    result = played(schedule, devices, micro)
    for device, order in enumerate(orders(schedule, devices, micro)):
        events = [each for each in result.computing if each.lane == f"device {device}" and "stage" in each.name]
        events.sort(key=lambda each: each.start_ns)
        told = [("forward" if kind == "forward" else "backward", f"stage {stage}") for kind, _, stage in order]
        assert [(each.category, each.name) for each in events] == told


def lanes(result: Result, device: int) -> list[tuple[str, str, int, int]]:
    def start(event: Event) -> int:
        return event.start_ns

    mine = [each for each in result.computing if each.lane == f"device {device}"]
    return [(each.name, each.category, each.start_ns, each.end_ns) for each in sorted(mine, key=start)]


def test_weights_apart_by_hand() -> None:
    """Two micro-batches over two devices; a has no input gradient but for the nanosecond of a beat, b has half."""
    what = graph(layer("a", weights=1), layer("b", [0], weights=1))
    costs = Known({"a": (20, 200), "b": (2000, 20000)})
    splits = [on(0), on(1)]
    plan = parse("pipeline:2,schedule=zerobubble")
    result = predict(what, splits, costs, cluster(2, Level(1, 1e9, 0.0)), BATCH, 2, pipeline_of(plan, splits))
    assert lanes(result, 1) == [
        ("b", "forward", 11, 1011),
        ("b", "backward", 1011, 6011),
        ("b", "forward", 6011, 7011),
        ("b", "backward", 7011, 12011),
        ("b", "backward", 12011, 17011),  # the weights of the first
        ("b", "backward", 17011, 22011),
        ("update", "update", 22011, 22012),
    ]
    assert lanes(result, 0) == [
        ("a", "forward", 0, 10),
        ("a", "forward", 10, 20),
        ("a", "backward", 6012, 6013),
        ("a", "backward", 6013, 6112),
        ("a", "backward", 12012, 12013),
        ("a", "backward", 12013, 12112),
        ("update", "update", 12112, 12113),
    ]


def test_gradients_are_reduced_when_the_last_weights_are_there() -> None:
    what = graph(layer("stem", weights=1), layer("a", [0], weights=1000))
    splits = [on(0, sample=2)] * 2
    pipeline = Pipeline("zerobubble", (0, 0), {0: 0, 1: 0})
    costs = Known({"stem": (1, 1), "a": (80, 800)})
    result = predict(what, splits, costs, cluster(2), BATCH, 2, pipeline)
    (reduced, *_) = sorted(each.start_ns for each in result.moving if each.name == "a")
    assert reduced == max(each.end_ns for each in result.computing if each.name == "a")
    assert sum(each.name == "a" and each.category == "backward" for each in result.computing) == 2 * 2 * 2


def test_who_sends_goes_on_where_nothing_overlaps() -> None:
    """Device 0 sends twice for 2,000 ns, after what it computes; device 1 gets the second when it is done with the
    first, and is held up while it gets."""
    what = graph(layer("a", weights=1), layer("b", [0], weights=1))
    costs = Known({"a": (2000, 2), "b": (20000, 2)})
    result = predict(what, [on(0), on(1)], costs, cluster(2, overlap=False), BATCH, 2)
    forward = [[each[2:] for each in lanes(result, device) if each[1] == "forward"] for device in (0, 1)]
    assert forward[0] == [(0, 1000), (3000, 4000)]
    assert forward[1] == [(3000, 13000), (15000, 25000)]


def norm(name: str, after: int) -> Layer:
    return Layer(name, "norm", "BatchNorm2d", ((BATCH, 50),), (BATCH, 50), ((50,), (50,)), 1, (after,))


def test_only_layers_of_products_have_weights_apart() -> None:
    what = graph(layer("stem", weights=1), norm("norm", 0), layer("act", [1], kind="pointwise"))
    costs = Known({"stem": (10, 100), "norm": (10, 100), "act": (10, 100)})
    result = predict(what, [on(0)] * 3, costs, cluster(1), BATCH, 1, Pipeline("zerobubble", (0, 0, 0), {0: 0}))
    count = {name: len(list(each)) for name, each in groupby(sorted(each.name for each in result.computing))}
    assert count == {"stem": 3, "norm": 2, "act": 2, "update": 1}
    assert result.step_ns == 330 + 101


def megabytes(result: Result) -> list[Fraction]:
    return [Fraction(each, 2**20) for each in result.memory_bytes]


@pytest.mark.parametrize(
    ("schedule", "kept"),
    [("gpipe", [8, 8, 8]), ("1f1b", [3, 2, 1]), ("zerobubble", [3, 3, 3]), ("interleaved", [9, 7, 5])],
)
def test_micro_batches_in_memory(schedule: str, kept: Sequence[int]) -> None:
    """A stage keeps 1 MB for each micro-batch in flight; of the interleaved each device has two stages, eight over
    three devices in groups of four: 2 (2 - d) + 4 forwards ahead, and one more."""
    assert megabytes(played(schedule, 3, 8, held=8 * 2**20)) == kept


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_recomputing_costs_a_forward_and_keeps_inputs_alone(schedule: str) -> None:
    devices, micro, held = 3, 8, 8 * 2**20
    usual, again = (played(schedule, devices, micro, each, held) for each in ("off", "on"))
    for before, after in zip(usual.busy_ns, again.busy_ns, strict=True):
        assert after == pytest.approx(before + UNIT * micro * stages_per_device(schedule), rel=NEAR)
    inputs = BATCH * 250 * 4 // micro  # bytes of a micro-batch between two stages
    own = stages_per_device(schedule) * 2**20  # of the micro-batch that is computed again
    kept = {"gpipe": [8, 8, 8], "1f1b": [3, 2, 1], "zerobubble": [3, 3, 3], "interleaved": [9, 7, 5]}[schedule]
    # The first stage takes from the model's input, which is counted at the stem.
    assert again.memory_bytes == [own + count * inputs for count in kept]
