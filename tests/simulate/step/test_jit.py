"""What Python plays by itself is what the compiled simulator plays."""

import random

import pytest

from manyhands.simulate.step import simulation
from manyhands.simulate.step.simulation import Simulation
from simulate.scenes import machine, problem, splitter, zoo_graph


@pytest.mark.parametrize("devices", [1, 4, 6])
@pytest.mark.parametrize("name", ["alexnet", "resnet50", "text", "transformer"])
def test_every_time_is_the_same(name: str, devices: int, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = zoo_graph(name)
    draw = splitter(graph, devices, 96, random.Random(devices))
    first, second = ([draw(number) for number in range(len(graph.layers))] for _ in range(2))
    changed = dict(enumerate(second[: len(second) // 2]))
    seen = []
    for compiles in (True, False):
        player = simulation.Executor()
        player.compiles = compiles
        monkeypatch.setattr(simulation, "is_compiled", lambda function: False)
        monkeypatch.setattr(simulation, "execute", player)
        played = Simulation(problem(graph, machine(devices), 96), first)
        seen.append((played.step_ns, played.times(), played.change(changed), played.times()))
        assert player.compiles == compiles
    assert seen[0] == seen[1]


def test_much_work_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    player = simulation.Executor()
    monkeypatch.setattr(simulation, "execute", player)
    monkeypatch.setattr(simulation, "is_compiled", lambda function: False)
    monkeypatch.setattr(simulation, "WORK", 100)
    graph = zoo_graph("text")
    what = problem(graph, machine(4), 96)  # 4 devices x 11 beats
    splits = [splitter(graph, 4, 96, random.Random(0))(number) for number in range(len(graph.layers))]
    Simulation(what, splits)
    assert not player.compiles
    Simulation(what, splits)
    Simulation(what, splits)
    assert player.compiles
