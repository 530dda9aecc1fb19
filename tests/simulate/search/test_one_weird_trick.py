"""One weird trick on K20s: from the described machine and the published time of one GPU alone."""

import pytest
import torch

from manyhands.graph.coarsen import coarsen
from manyhands.graph.graph import Graph
from manyhands.graph.trace import trace
from manyhands.machine.cluster import Accelerator, Cluster, Level
from manyhands.models.zoo import Shapes, build
from manyhands.plan.presets import splits
from manyhands.plan.spec import parse
from manyhands.simulate.cost.roofline import Analytic
from manyhands.simulate.step.result import Result, predict

PUBLISHED = {2: 1.95, 4: 3.74, 8: 6.25}
ONE_DEVICE_NS = 98.05 * 3600 / 90 / 1_281_167 * 128 * 1e9  # 98.05 h for 90 epochs of ImageNet, 128 images a step
K20 = Accelerator("K20", 5 * 2**30, {"fp32": 3.52}, 208.0)


@pytest.fixture(scope="module", name="graph")
def _graph() -> Graph:
    with torch.device("meta"):
        model = build("alexnet", Shapes(1000, (3, 224, 224)))
    return coarsen(trace(model, torch.zeros(2, 3, 224, 224, device="meta")))


def simulated(graph: Graph, words: str, devices: int, slowdown: float, bandwidth: float = 1.0) -> Result:
    """Two CPUs with four K20 each: 6 GB/s from one to another, 6 GB/s in all between the CPUs, both ways together."""
    links = (Level(1, 6.0 * bandwidth, 10.0), Level(4, 6.0 * bandwidth, 10.0, duplex=False))
    cluster, batch = Cluster(devices, K20, links, "direct"), 128 * devices
    return predict(
        graph, splits(parse(words).axes, graph, batch), Analytic(K20, 2, "fp32", "sgd", slowdown), cluster, batch
    )


def slowdown(graph: Graph) -> float:
    """By which all layers take as long as published; the update is not scaled."""
    one = simulated(graph, "serial", 1, 1.0)
    update = sum(each.end_ns - each.start_ns for each in one.computing if each.category == "update")
    return (ONE_DEVICE_NS - update) / (one.step_ns - update)


@pytest.mark.parametrize(("devices", "published"), PUBLISHED.items())
def test_speed_ups_are_within_15_percent_of_the_published(graph: Graph, devices: int, published: float) -> None:
    slower = slowdown(graph)
    one = simulated(graph, "serial", 1, slower)
    assert one.step_ns == pytest.approx(ONE_DEVICE_NS, rel=1e-6)
    many = simulated(graph, f"owt:{devices}", devices, slower)
    assert devices * one.step_ns / many.step_ns == pytest.approx(published, rel=0.15)


def test_faster_links_never_make_it_slower(graph: Graph) -> None:
    slower = slowdown(graph)
    steps = [simulated(graph, "owt:8", 8, slower, bandwidth).step_ns for bandwidth in (0.8, 1.0, 1.2)]
    assert steps == sorted(steps, reverse=True)
    assert len(set(steps)) == 3
