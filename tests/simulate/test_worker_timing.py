"""What things take: uneven and jittering workers, messages and sums over described links."""

import numpy as np
import pytest

from manyhands.config import Config, with_values
from manyhands.machine import cluster_toml
from manyhands.machine.cluster import Accelerator, Cluster, Level
from manyhands.plan.spec import parse
from manyhands.simulate.simulator import Simulator
from manyhands.simulate.worker_timing import WorkerTiming, all_reduce, between

CHIP = Accelerator("chip", 2**40, {"fp32": 1.0}, 1.0)
NODES = (Level(1, 10.0, 1.0), Level(4, 2.0, 20.0))


def test_jitter_has_mean_one_and_the_deviation_that_is_said() -> None:
    pace = WorkerTiming(1, {1: 10**9}, jitter=0.2, seed=4)
    times = np.array([pace.work(0, step, 1) for step in range(4000)]) / 1e9
    assert times.mean() == pytest.approx(1, abs=4 * 0.2 / 4000**0.5)
    assert times.std() == pytest.approx(0.2, rel=0.1)
    assert times.min() > 0
    assert pace.work(0, 7, 1) == pace.work(0, 7, 1) != pace.work(1, 7, 1)


def test_speeds_repeat() -> None:
    pace = WorkerTiming(4, {1: 100}, speeds=(1.0, 0.5))
    assert [pace.work(worker, 0, 1) for worker in range(4)] == [100, 200, 100, 200]


def test_a_message_goes_over_the_narrowest_link() -> None:
    cluster = Cluster(8, CHIP, NODES)
    assert between(cluster, 4) == (1e3, 10.0)
    assert between(cluster, 5) == (20e3, 2.0)
    assert between(cluster, 1) == (1e3, 10.0)


def test_sums_by_hand() -> None:
    """A ring of 4 in a node: 2 · 3/4 of 1000 bytes at 10 bytes/ns, and 2 · 2 relays of 1 us. Where each of 4 sends to
    each of 4 others, 16/7 as much leaves a node as in a ring."""
    assert all_reduce(Cluster(8, CHIP, NODES), 4, 1000) == 150 + 4000
    assert all_reduce(Cluster(8, CHIP, NODES), 8, 1000) == 875 + 6 * 20_000
    assert all_reduce(Cluster(8, CHIP, NODES, "direct"), 8, 7000) == 14_000 + 6 * 20_000
    assert all_reduce(Cluster(8, CHIP, NODES), 1, 1000) == 0


@pytest.mark.parametrize("machine", ["edge4-1gbe", "p100x4-25gbe", "cpu16"])
def test_sums_are_those_of_the_simulator(machine: str) -> None:
    """One layer with weights, so that a step has one sum: what two devices take more than one with the same samples."""
    config = with_values(Config(), {"model.name": "mlp", "model.depth": 1, "data.name": "synthetic:1x8x8,10"})
    simulator = Simulator.of(config, machine)
    layers = [layer for layer in simulator.graph.layers if layer.parameters]
    late = Simulator(simulator.graph, machine, Cluster(**{**vars(cluster_toml.find(machine)), "late": True}))
    found = late.predict(parse("data:2"), 64)
    summed = sum(all_reduce(late.cluster, 2, 4 * layer.parameters) for layer in layers)
    assert found.result.step_ns - found.alone.step_ns == pytest.approx(summed, abs=2 * len(layers))
