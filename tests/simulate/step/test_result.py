"""What a simulation says of a plan: memory, idle and exposed time, and a timeline that can be drawn."""

import random
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest

from manyhands.errors import PlanError
from manyhands.plan.presets import splits
from manyhands.plan.sharding import Split, on
from manyhands.plan.spec import parse
from manyhands.simulate.step.result import Result, predict
from manyhands.simulate.step.simulation import Simulation
from manyhands.timeline import Timeline
from simulate.scenes import BATCH, Known, cluster, graph, layer, machine, problem, splitter, zoo_graph

TWO = graph(layer("a", weights=1), layer("b", [0], weights=1))
TIMES = {"a": (10, 100), "b": (1000, 10000)}


def test_memory_of_the_fullest_device() -> None:
    costs = Known(TIMES, bytes_of={"a": 2**40, "b": 2**38})
    result = predict(TWO, [on(0, sample=2), on(1)], costs, cluster(2), BATCH)
    assert result.memory_bytes == [2**39, 2**39 + 2**38]
    assert result.missing_bytes == 0
    result = predict(TWO, [on(1), on(1, copies=2)], costs, cluster(3), BATCH)
    assert result.memory_bytes == [0, 2**40 + 2**38, 2**38]
    assert result.missing_bytes == 2**38
    pieces = predict(TWO, [on(0, parameter=2, reduction=2), on(0)], costs, cluster(4), BATCH)
    assert pieces.memory_bytes == [2**38 + 2**38, 2**38, 2**38, 2**38]
    assert predict(TWO, [on(0), on(1)], costs, cluster(2), BATCH, micro=2).memory_bytes == [2**40, 2**38]


def random_result(name: str, devices: int, seed: int, micro: int, fused: bool = True, **options: object) -> Result:
    what, rng = zoo_graph(name, fused), random.Random(seed)
    draw = splitter(what, devices, 96, rng)
    where = machine(devices, **options)  # type: ignore[arg-type]
    chosen = [draw(number) for number in range(len(what.layers))]
    return Result(what, 96, Simulation(problem(what, where, 96, micro), chosen))


CASES = [
    ("alexnet", 4, {}),
    ("alexnet", 8, {"overlap": False}),
    ("resnet50", 6, {"collectives": "direct"}),
    ("text", 16, {"duplex": False}),
    ("transformer", 8, {"late": True}),
]


@pytest.mark.parametrize(("name", "devices", "options"), CASES)
@pytest.mark.parametrize("micro", [1, 3])
def test_a_device_does_one_thing_at_a_time_until_the_end(
    name: str, devices: int, options: dict[str, object], micro: int
) -> None:
    for seed in range(5):
        result = random_result(name, devices, seed, micro, **options)
        lanes = defaultdict(list)
        for event in result.computing:
            assert 0 <= event.start_ns < event.end_ns
            lanes[event.lane].append(event)
        for events in lanes.values():
            events.sort(key=lambda event: event.start_ns)
            assert all(one.end_ns <= two.start_ns for one, two in pairwise(events))
        assert max(event.end_ns for event in result.computing) == result.step_ns
        assert max(event.end_ns for event in result.timeline.events) == result.step_ns
        assert all(0 <= event.start_ns < event.end_ns for event in result.moving)


@pytest.mark.parametrize(("name", "devices", "options"), CASES)
def test_every_part_is_computed_once_a_pass_and_micro_batch(
    name: str, devices: int, options: dict[str, object]
) -> None:
    result = random_result(name, devices, 7, 2, **options)
    counted: dict[tuple[str, str], int] = defaultdict(int)
    for event in result.computing:
        counted[event.name, event.category] += 1
    board = result.simulation.board
    for number, each in enumerate(result.graph.layers):
        parts = int(board.parts[number])
        assert counted[each.name, "forward"] == 2 * parts
        assert counted[each.name, "backward"] == 2 * parts * result.graph.learns[number]


@pytest.mark.parametrize(("name", "devices", "options"), CASES)
def test_idle_and_exposed_time(name: str, devices: int, options: dict[str, object]) -> None:
    result = random_result(name, devices, 3, 1, **options)
    busy = [0] * devices
    for event in result.computing:
        busy[int(event.lane.split()[1])] += event.end_ns - event.start_ns
    assert result.busy_ns == busy
    assert result.idle_fraction == pytest.approx(1 - sum(busy) / devices / result.step_ns)
    assert 0 <= result.exposed_ns <= result.step_ns - min(busy)
    # Where all is one device's, nothing moves.
    alone = predict(TWO, [on(0), on(0)], Known(TIMES), cluster(devices), BATCH)
    assert (alone.exposed_ns, alone.moving) == (0, [])


def test_nothing_goes_before_what_it_takes() -> None:
    """No part of a layer begins before some part of all that it takes has ended, nor in the backward pass."""
    for seed in range(5):
        result = random_result("transformer", 6, seed, 1, fused=False)
        first_start: dict[tuple[str, str], int] = {}
        first_end: dict[tuple[str, str], int] = {}
        for event in sorted(result.computing, key=lambda event: event.start_ns):
            key = event.name, event.category
            first_start.setdefault(key, event.start_ns)
            first_end[key] = min(first_end.get(key, event.end_ns), event.end_ns)
        names = [each.name for each in result.graph.layers]
        for source, target in result.graph.edges:
            assert first_start[names[target], "forward"] >= first_end[names[source], "forward"]
            if result.graph.learns[source]:
                assert first_start[names[source], "backward"] >= first_end[names[target], "backward"]


def test_the_timeline_is_kept_as_a_trace(tmp_path: Path) -> None:
    result = predict(TWO, [on(0), on(1)], Known(TIMES), cluster(2), BATCH)
    result.timeline.save(tmp_path / "trace.json")
    assert Timeline.load(tmp_path / "trace.json") == result.timeline
    assert {event.lane for event in result.timeline.events} == {
        "device 0",
        "device 1",
        "device 0 link",
        "device 1 link",
    }


def data(late: bool) -> Result:
    what = graph(layer("a", weights=500), layer("b", [0], weights=2000))
    return predict(what, [on(0, sample=2)] * 2, Known(TIMES), cluster(2, late=late), BATCH)


def test_late_reductions_are_moves_too() -> None:
    assert data(late=True).exposed_ns == 8000 + 2000
    assert {each.category for each in data(late=True).moving} == {"collective"}


def test_who_waits_for_another_does_not_move_data() -> None:
    """Device 1 is done with its half long before device 0: the reduction itself takes 4,000 ns."""
    what = graph(layer("busy", kind="other"), layer("a", weights=1000))
    splits = [on(0), on(0, sample=2)]
    result = predict(what, splits, Known({"busy": (50_000, 1), "a": (20, 20)}), cluster(2), BATCH)
    assert result.exposed_ns == 4000


def test_moves_over_one_port_are_drawn_one_after_the_other() -> None:
    for event, following in pairwise(sorted(data(late=False).moving, key=lambda event: (event.lane, event.start_ns))):
        assert event.lane != following.lane or event.end_ns <= following.start_ns


@pytest.mark.parametrize(
    ("words", "devices"), [("data:4", 4), ("owt:4", 4), ("tensor:4", 4), ("pipeline:4", 4), ("data:2,tensor:2", 4)]
)
@pytest.mark.parametrize("name", ["alexnet", "transformer"])
def test_presets_can_be_predicted(words: str, devices: int, name: str) -> None:
    what = zoo_graph(name)
    result = Result(what, 96, Simulation(problem(what, machine(devices), 96), splits(parse(words).axes, what, 96)))
    alone = Result(what, 96, Simulation(problem(what, machine(devices), 96), [on(0)] * len(what.layers)))
    assert result.step_ns > 0
    assert max(result.memory_bytes) < max(alone.memory_bytes)
    assert alone.idle_fraction == pytest.approx(1 - 1 / devices)


@pytest.mark.parametrize(
    ("chosen", "told"),
    [
        ([on(0), on(0, sample=3)], "sample=3"),
        ([on(0), on(2, sample=2)], "device 3 of 2"),
        ([on(0)], "1 split"),
    ],
)
def test_a_split_that_the_cluster_does_not_have_is_refused(chosen: list[Split], told: str) -> None:
    with pytest.raises(PlanError, match=told):
        predict(TWO, chosen, Known(TIMES), cluster(4 if told == "sample=3" else 2), BATCH)
