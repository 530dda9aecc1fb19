"""Dynamic programming over a chain of layers: the fastest plan that hands over in step, and how near walks come."""

from dataclasses import replace
from itertools import product

import pytest

from manyhands.errors import PlanError
from manyhands.graph.graph import Graph
from manyhands.machine.cluster import Cluster, Level
from manyhands.plan.presets import splits
from manyhands.plan.sharding import Split, on
from manyhands.plan.spec import parse
from manyhands.simulate.search.annealing import search
from manyhands.simulate.search.dynamic_programming import exact
from manyhands.simulate.search.space import Space
from manyhands.simulate.step.arrays import Problem
from manyhands.simulate.step.build import make
from manyhands.simulate.step.simulation import Simulation
from manyhands.simulate.step.task_order import gpipe
from simulate.scenes import BATCH, Known, cluster, graph, layer, machine, problem, zoo_graph

CHAIN = graph(
    layer("a", weights=900, numbers=4000), layer("b", [0], weights=70, numbers=1200), layer("c", [1], weights=2100)
)
COSTS = Known({"a": (7001, 14003), "b": (3001, 6007), "c": (1009, 2003)})


def alone(devices: int) -> Cluster:
    """One thing at a time on each device, over links of one level."""
    return replace(machine(devices), overlap=False, levels=(Level(1, 4.0, 5.0),))


def small(devices: int, gb_per_s: float, late: bool = False) -> tuple[Problem, Space]:
    where = cluster(devices, Level(1, gb_per_s, 0.05), overlap=False, late=late)
    return make(CHAIN, COSTS, where, BATCH, gpipe(CHAIN, 1)), Space.of(CHAIN, BATCH, devices)


def choices(space: Space, number: int) -> list[Split]:
    rows = space.ways[space.starts[number] : space.starts[number + 1]].tolist()
    return [on(0, sample=s, parameter=p, reduction=r, copies=c) for s, p, r, c in rows]


def in_step(played: Simulation) -> bool:
    """Whether the devices of every beat end together: seen on the timeline."""
    ends: dict[int, set[int]] = {}
    for beat, _, _, end in played.times()["computed"]:
        ends.setdefault(beat, set()).add(end)
    return all(len(each) == 1 for each in ends.values())


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("gb_per_s", [0.2, 1.0, 5.0, 1000.0])
@pytest.mark.parametrize("devices", [2, 4])
def test_nothing_that_hands_over_in_step_is_faster(devices: int, gb_per_s: float, late: bool) -> None:
    what, space = small(devices, gb_per_s, late)
    best = exact(what, space)
    assert Simulation(what, best.splits).step_ns == best.step_ns
    plans = product(*(choices(space, number) for number in range(len(CHAIN.layers))))
    played = [each for each in (Simulation(what, plan) for plan in plans) if in_step(each)]
    assert min(each.step_ns for each in played) == best.step_ns
    assert best.plans <= len(played)


@pytest.mark.parametrize("devices", [2, 4])
def test_a_walk_comes_near(devices: int) -> None:
    net = zoo_graph("alexnet")
    what, space = problem(net, alone(devices), 64), Space.of(net, 64, devices)
    starts = {word: splits(parse(word).axes, net, 64) for word in ("serial", f"data:{devices}", f"tensor:{devices}")}
    best, walked = exact(what, space), search(what, space, starts, 30_000)
    assert best.step_ns <= min(Simulation(what, each).step_ns for each in starts.values())
    assert best.step_ns <= walked.step_ns <= 1.01 * best.step_ns


def refused(net: Graph, where: Cluster, micro: int = 1) -> str:
    what = problem(net, where, 64, micro)
    with pytest.raises(PlanError) as caught:
        exact(what, Space.of(net, 64, where.devices))
    return str(caught.value)


def test_where_a_step_is_no_sum_it_is_said() -> None:
    net = zoo_graph("alexnet")
    levels = (Level(1, 4.0, 5.0), Level(2, 1.0, 5.0))
    assert "overlap" in refused(net, replace(alone(4), overlap=True))
    assert "several levels" in refused(net, replace(alone(4), levels=levels))
    assert "no chain" in refused(zoo_graph("transformer"), alone(4))
    assert "micro-batches" in refused(net, alone(2), 2)


def test_groups_that_hold_all_devices_are_no_level() -> None:
    net = zoo_graph("alexnet")
    wide = replace(alone(4), levels=(Level(1, 4.0, 5.0), Level(4, 1.0, 5.0)))
    assert exact(problem(net, wide, 64), Space.of(net, 64, 4)).step_ns > 0


def test_what_does_not_fit_is_not_given() -> None:
    net = zoo_graph("alexnet")
    what = problem(net, alone(2), 64)._replace(capacity=1)
    with pytest.raises(PlanError, match="lacks"):
        exact(what, Space.of(net, 64, 2))
