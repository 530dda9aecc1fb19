"""The repaired timeline is exactly the one that is played in full, after every move."""

import random
from collections.abc import Callable, Iterator
from itertools import product

import numpy as np
import pytest

from manyhands.plan.pipeline_schedule import SCHEDULES
from manyhands.plan.sharding import Split, on
from manyhands.simulate.step.simulation import Simulation
from simulate.scenes import machine, problem, splitter, zoo_graph

Draw = Callable[[int], Split]
BATCH = 192
SHORT = [  # model, fused, devices, collectives, overlap, late, duplex, micro-batches, schedule
    ("alexnet", True, 2, "ring", True, False, True, 3, "gpipe"),
    ("alexnet", True, 64, "direct", True, False, False, 1, "gpipe"),
    ("alexnet", False, 6, "ring", True, True, True, 1, "gpipe"),
    ("resnet50", True, 3, "direct", False, False, True, 1, "gpipe"),
    ("resnet50", True, 16, "ring", True, False, False, 1, "gpipe"),
    ("text", True, 8, "ring", True, False, False, 3, "gpipe"),
    ("text", False, 64, "direct", False, True, True, 1, "gpipe"),
    ("transformer", True, 8, "direct", True, False, True, 1, "gpipe"),
    ("transformer", True, 16, "ring", False, False, False, 3, "gpipe"),
    ("transformer", False, 6, "ring", True, False, True, 1, "gpipe"),
    ("alexnet", True, 4, "ring", True, False, True, 3, "1f1b"),
    ("alexnet", True, 8, "ring", True, False, True, 4, "zerobubble"),
    ("resnet50", True, 4, "direct", True, False, False, 2, "zerobubble"),
    ("text", True, 6, "ring", False, False, True, 5, "interleaved"),
    ("transformer", True, 6, "direct", False, True, True, 3, "zerobubble"),
]


def moves(devices: int, layers: int, draw: Draw, count: int, rng: random.Random) -> Iterator[dict[int, Split]]:
    """Single layers, runs of neighbours, those by sample or on one device too, and layers that are far apart."""
    for _ in range(count):
        chance, first = rng.random(), rng.randrange(layers)
        run = range(first, min(first + rng.randint(2, 6), layers))
        if chance < 0.5:
            yield {first: draw(first)}
        elif chance < 0.7:
            yield {number: draw(number) for number in run}
        elif chance < 0.9:
            alike = on(0, sample=devices) if chance < 0.8 else on(rng.randrange(devices))
            yield dict.fromkeys(run, alike)
        else:
            yield {number: draw(number) for number in rng.sample(range(layers), min(layers, rng.randint(2, 4)))}


def timeline(simulation: Simulation) -> list[np.ndarray]:
    """Every start and end, as `Simulation.times` tells them but as arrays: half a million of them are compared."""
    problem, board = simulation.problem, simulation.board
    used = board.place[problem.layer] >= 0
    at = np.arange(len(problem.layer))
    later = board.later[:, None]
    computed = np.where(used, board.computed[board.which, at] + later, 0)
    ends = np.where(used, board.ends[board.which, at] + later, 0)
    found = [computed, ends, board.begun, board.done]
    edges = np.arange(len(problem.source))
    for direction, layer_of in enumerate((problem.target, problem.source)):
        durations = board.move[board.edge, edges, direction]
        inside = np.arange(durations.shape[1]) < board.components[board.edge, edges][:, None]
        durations = np.where(inside, durations, 0)
        found.append(durations)
        for micro in range(problem.beat.shape[1]):
            beats = problem.beat[direction, micro, layer_of]
            goes = (beats >= 0) & (problem.back | (direction == 0))
            arrived = board.arrived[board.which[beats], 2 * micro + direction, edges] + board.later[beats][:, None]
            found.append(np.where((durations > 0) & goes[:, None], arrived, 0))
    last = problem.synced >= 0
    layers = np.arange(len(problem.synced))
    synced = board.synced[board.which[problem.synced], layers] + board.later[problem.synced][:, None]
    found.append(np.where(last[:, None] & (board.place >= 0), synced, 0))
    return found


def check(
    name: str, fused: bool, devices: int, micro: int, schedule: str, count: int, seed: int, **options: object
) -> None:
    graph = zoo_graph(name, fused)
    rng = random.Random(seed)
    what = problem(graph, machine(devices, **options), BATCH, micro, schedule)  # type: ignore[arg-type]
    draw = splitter(graph, devices, BATCH, rng)
    splits = [draw(number) for number in range(len(graph.layers))]
    repaired, played = Simulation(what, splits), Simulation(what, splits)
    for number, move in enumerate(moves(devices, len(splits), draw, count, rng)):
        repaired.change(move)
        for layer, split in move.items():
            played._place(layer, split)
        played.full()
        assert repaired.step_ns == played.step_ns, f"move {number}: {move}"
        for one, other in zip(timeline(repaired), timeline(played), strict=True):
            assert np.array_equal(one, other), f"move {number}: {move}"
    fresh = Simulation(what, [split_of(played, layer) for layer in range(len(splits))])
    assert repaired.times() == played.times() == fresh.times()


def split_of(simulation: Simulation, layer: int) -> Split:
    board = simulation.board
    degrees = (int(each[layer]) for each in (board.sample, board.parameter, board.reduction, board.copies))
    return Split(*degrees, tuple(map(int, board.device[layer][: board.parts[layer]])))


@pytest.mark.parametrize(
    ("name", "fused", "devices", "collectives", "overlap", "late", "duplex", "micro", "schedule"), SHORT
)
def test_delta_is_full(
    name: str,
    fused: bool,
    devices: int,
    collectives: str,
    overlap: bool,
    late: bool,
    duplex: bool,
    micro: int,
    schedule: str,
) -> None:
    options = {"collectives": collectives, "overlap": overlap, "late": late, "duplex": duplex}
    check(name, fused, devices, micro, schedule, 80, devices, **options)


@pytest.mark.long
@pytest.mark.parametrize("name", ["alexnet", "resnet50", "text", "transformer"])
def test_delta_is_full_over_thousands_of_moves(name: str) -> None:
    """4,800 moves a model, over devices, micro-batches and kinds of links; some on the graph that is not fused."""
    kinds = list(product(("ring", "direct"), (True, False), (False, True), (True, False)))
    for number, (devices, micro) in enumerate(product((2, 3, 6, 8, 16, 64), (1, 3))):
        for each, schedule in enumerate(SCHEDULES):
            collectives, overlap, late, duplex = kinds[(5 * number + 3 * each) % len(kinds)]
            options = {"collectives": collectives, "overlap": overlap, "late": late, "duplex": duplex}
            fused = each > 0
            check(name, fused, devices, micro, schedule, 100, 100 * number + each, **options)


def test_the_comparison_sees_every_time() -> None:
    """A timeline that is off in one place by one nanosecond is not the same: the check itself can fail."""
    graph = zoo_graph("text")
    rng = random.Random(1)
    draw = splitter(graph, 8, BATCH, rng)
    splits = [draw(number) for number in range(len(graph.layers))]
    what = problem(graph, machine(8), BATCH)
    for array in ("computed", "ends", "arrived", "synced", "begun", "done"):
        one, other = Simulation(what, splits), Simulation(what, splits)
        getattr(one.board, array)[...] += 1
        assert any(not np.array_equal(a, b) for a, b in zip(timeline(one), timeline(other), strict=True)), array
        assert one.times() != other.times(), array


def test_a_change_can_be_taken_back() -> None:
    graph = zoo_graph("alexnet")
    rng = random.Random(2)
    draw = splitter(graph, 8, BATCH, rng)
    splits = [draw(number) for number in range(len(graph.layers))]
    simulation = Simulation(problem(graph, machine(8), BATCH), splits)
    before, step = simulation.times(), simulation.step_ns
    assert simulation.change({3: draw(3), 4: draw(4)}) != step
    assert simulation.change({3: splits[3], 4: splits[4]}) == step
    assert simulation.times() == before
    assert simulation.change({}) == step
    assert simulation.times() == before
