"""Small graphs and costs whose times can be added up by hand, and the models of the zoo with random splits."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch

from manyhands.graph.coarsen import coarsen
from manyhands.graph.graph import Graph, Layer
from manyhands.graph.trace import trace
from manyhands.machine.cluster import Accelerator, Cluster, Level
from manyhands.models.zoo import Options, Shapes, build
from manyhands.plan.pipeline_schedule import stages_per_device
from manyhands.plan.sharding import Split
from manyhands.plan.sharding_rules import ways
from manyhands.plan.stages import Pipeline, balance
from manyhands.simulate.cost.roofline import Analytic
from manyhands.simulate.step.arrays import Problem
from manyhands.simulate.step.build import degrees, make
from manyhands.simulate.step.task_order import program

BATCH = 4
DEVICE = Accelerator("one", 2**40, {"fp32": 1.0}, 1.0)


@dataclass(frozen=True)
class Known:
    """Costs by layer: passes of the whole batch, cut evenly; a nanosecond of update for each parameter."""

    passes: dict[str, tuple[int, int]]
    synced: dict[str, int] = field(default_factory=dict)
    bytes_of: dict[str, int] = field(default_factory=dict)

    def layer(self, layer: Layer, samples: float, parameter: int, reduction: int) -> tuple[int, int]:
        share = samples / BATCH / parameter / reduction
        return round(self.passes[layer.name][0] * share), round(self.passes[layer.name][1] * share)

    def update(self, parameters: float) -> int:
        return round(parameters)

    def sync(self, layer: Layer, sample: int, pieces: int) -> int | None:
        return self.synced.get(layer.name) if sample > 1 else None

    def memory(self, layer: Layer, samples: float, parameter: int, reduction: int, micro: int) -> int:
        return round(self.bytes_of.get(layer.name, 0) * samples * micro / BATCH / (parameter * reduction))

    def activation_bytes(self) -> int:
        return 4


def layer(name: str, after: Sequence[int] = (), *, weights: int = 0, numbers: int = 1000, kind: str = "dense") -> Layer:
    """One that gives so many numbers for the batch, 4 bytes each, and has so many parameters."""
    output = (BATCH, numbers // BATCH)
    held = ((weights,),) if weights else ()
    return Layer(name, kind, "Linear" if kind == "dense" else kind, (output,), output, held, 1, tuple(after))


def graph(*layers: Layer) -> Graph:
    return Graph(BATCH, layers, "export")


def cluster(devices: int, *levels: Level, **options: Any) -> Cluster:
    """Ports of 1 GB/s, one byte a nanosecond, without latency, unless levels are given."""
    return Cluster(devices, DEVICE, levels or (Level(1, 1.0, 0.0),), **options)


# The models of the zoo.

P100 = Accelerator("P100", 16 * 2**30, {"fp32": 9.3}, 732.0, {"conv": 0.6, "dense": 0.6}, 8)
SHAPES = {
    "alexnet": (Shapes(200, (3, 64, 64)), Options(head="6x6")),
    "resnet50": (Shapes(200, (3, 64, 64)), Options()),
    "text": (Shapes(4, (64,), 1000), Options()),
    "transformer": (Shapes(4, (64,), 1000), Options(width=2.0)),
}


@cache
def zoo_graph(name: str, fused: bool = True) -> Graph:
    shapes, options = SHAPES[name]
    model = build(name, shapes, options)
    inputs = torch.ones(2, *shapes.shape, dtype=torch.long if shapes.vocabulary else torch.float32)
    found = trace(model, inputs)
    return coarsen(found) if fused else found


def machine(devices: int, *, duplex: bool = True, **options: Any) -> Cluster:
    """Nodes of four where there are so many, two networks where there are more."""
    levels = [Level(1, 20.0, 5.0), Level(4, 12.0, 10.0, duplex), Level(16, 30.0, 25.0)]
    return Cluster(devices, P100, tuple(each for each in levels if each.devices < max(devices, 2)), **options)


def problem(graph: Graph, cluster: Cluster, batch: int, micro: int = 1, schedule: str = "gpipe") -> Problem:
    """Under a schedule the order of the beats is that of two positions, wherever the layers are."""
    stage = balance([float(layer.flops) for layer in graph.layers], 2 * stages_per_device(schedule))
    pipeline = Pipeline(schedule, tuple(stage), {0: 0, 1: 1})
    beats, costs = program(graph, micro, pipeline), Analytic(cluster.accelerator, graph.batch)
    return make(graph, costs, cluster, batch, beats, micro, pipeline)


def splitter(graph: Graph, devices: int, batch: int, rng: random.Random) -> Callable[[int], Split]:
    """Any split of a layer that it supports: every degree, neighbours or any devices in any order."""
    cuts = degrees(devices)
    limits = [ways(layer, batch) for layer in graph.layers]

    def draw(number: int) -> Split:
        most = limits[number]
        while True:
            sample, parameter = rng.choice(cuts), rng.choice(cuts)
            reduction = rng.choice(cuts) if rng.random() < 0.4 else 1
            copies = rng.choice(cuts) if rng.random() < 0.3 else 1
            parts = sample * parameter * reduction * copies
            if devices % parts or sample > most.sample or parameter > most.parameter or reduction > most.reduction:
                continue
            if rng.random() < 0.5:
                first = parts * rng.randrange(devices // parts)
                chosen = tuple(range(first, first + parts))
            else:
                chosen = tuple(rng.sample(range(devices), parts))
            return Split(sample, parameter, reduction, copies, chosen)

    return draw
