"""Space: the splits from which a search chooses."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod

import numpy as np

from manyhands.errors import PlanError
from manyhands.graph.graph import Graph
from manyhands.plan.axis import Axis
from manyhands.plan.presets import splits
from manyhands.plan.sharding import Split, on
from manyhands.plan.sharding_rules import ways
from manyhands.simulate.step.arrays import Ints
from manyhands.simulate.step.build import degrees

Way = tuple[int, int, int, int]  # degrees by sample, parameter, reduction, and copies


@dataclass(frozen=True)
class Space:
    """Arrays: the compiled loop takes them (see arrays.Tries)."""

    devices: int
    factors: Ints  # primes of their number
    ways: Ints  # degrees, those over all devices first [..., 4]
    starts: Ints  # where a layer's begin among them, and the end
    whole: Ints  # how many of a layer's are over all devices
    limits: Ints  # the highest degrees of a layer by sample, parameter, reduction
    plans: Ints  # what every mesh of data and tensor has for each layer: degrees and first device [..., l, 5]

    @classmethod
    def of(cls, graph: Graph, batch: int, devices: int) -> "Space":
        most = [ways(layer, batch) for layer in graph.layers]
        limits = [(each.sample, each.parameter, each.reduction) for each in most]
        listed = cache(lambda limit: sorted(_ways(devices, limit), key=prod, reverse=True))
        found = [listed(limit) for limit in limits]
        meshes = [(Axis("data", devices // cut), Axis("tensor", cut)) for cut in degrees(devices)]
        return cls(
            devices=devices,
            factors=np.array([each for each in degrees(devices) if len(degrees(each)) == 2] or [1]),
            ways=np.array([way for each in found for way in each], dtype=np.int64),
            starts=np.cumsum([0, *map(len, found)]),
            whole=np.array([sum(prod(way) == devices for way in each) for each in found]),
            limits=np.array(limits, dtype=np.int64),
            plans=np.array([table(splits(mesh, graph, batch)) for mesh in meshes if mesh[0].degree <= batch]),
        )


def _ways(devices: int, limit: tuple[int, int, int]) -> Iterator[Way]:
    """Every way to cut a layer over devices or some of them, so that equal parts are left for the others.

    Copies of a layer pay where a reduction gave every device the same, so only samples are cut beside them.
    """
    cuts = degrees(devices)
    for sample in (cut for cut in cuts if cut <= limit[0]):
        rest = [cut for cut in cuts if devices % (sample * cut) == 0]
        for parameter in (cut for cut in rest if cut <= limit[1]):
            for reduction in (cut for cut in rest if cut <= limit[2]):
                if devices % (sample * parameter * reduction) == 0:
                    yield sample, parameter, reduction, 1
        yield from ((sample, 1, 1, copies) for copies in rest if copies > 1)


def table(chosen: Sequence[Split]) -> Ints:
    """Degrees and first device of each layer."""
    for number, split in enumerate(chosen):
        if split.devices != tuple(range(split.devices[0], split.devices[0] + split.parts)):
            raise PlanError(f"layer {number} is on devices {list(split.devices)}: a search needs neighbours, in order")
    return np.array([[*split.degrees.values(), split.devices[0]] for split in chosen], dtype=np.int64)


def from_table(rows: Ints) -> tuple[Split, ...]:
    return tuple(
        on(first, sample=sample, parameter=parameter, reduction=reduction, copies=copies)
        for sample, parameter, reduction, copies, first in rows.tolist()
    )
