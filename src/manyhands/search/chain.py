"""Chain: search for a faster split of every layer, from several starts."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod

import numpy as np

from manyhands.graph.graph import Graph
from manyhands.plan.partition import ways
from manyhands.plan.split import Split, on
from manyhands.search.walk import walk
from manyhands.simulate.board import Ints, Problem
from manyhands.simulate.problem import degrees
from manyhands.simulate.simulation import Simulation

HOT, COLD = 0.03, 0.0003  # losses that are accepted in one of three cases, at the start and at the end


@dataclass(frozen=True)
class Found:
    """The best plan of a search, and what the search took."""

    splits: tuple[Split, ...]
    step_ns: int
    proposals: int
    seconds: float
    start: str  # the name of the start from which it was found
    lacks: int = 0  # bytes by which it does not fit on some device


@dataclass(frozen=True)
class Space:
    """The splits from which a search chooses, as arrays (see walk)."""

    ways: Ints
    starts: Ints
    limits: Ints

    @classmethod
    def of(cls, graph: Graph, batch: int, devices: int) -> "Space":
        cuts = degrees(devices)
        rows: list[tuple[int, int, int, int]] = []
        starts, limits = [0], []
        for layer in graph.layers:
            most = ways(layer, batch)
            limit = (most.sample, most.parameter, most.reduction)
            # Copies of a layer pay where a reduction gave every device the same, so only one at a time is cut so.
            rows += [
                each
                for each in product(cuts, cuts, cuts, cuts)
                if devices % prod(each) == 0
                and all(degree <= high for degree, high in zip(each, limit, strict=False))
                and (each[3] == 1 or each[1] == each[2] == 1)
            ]
            starts.append(len(rows))
            limits.append(limit)
        return cls(np.array(rows, dtype=np.int64), np.array(starts), np.array(limits, dtype=np.int64))


def search(
    problem: Problem,
    space: Space,
    starts: Mapping[str, Sequence[Split]],
    proposals: int,
    seed: int = 0,
    delta: bool = True,
) -> Found:
    """Walk from each start, with as many proposals for each; the best of all."""
    begun = time.perf_counter()
    best: Found | None = None
    for number, (name, splits) in enumerate(starts.items()):
        simulation = Simulation(problem, splits)
        first = np.array([split.devices[0] for split in splits], dtype=np.int64)
        each = proposals // len(starts)
        step_ns, lacks = walk(
            problem,
            simulation.board,
            space.ways,
            space.starts,
            space.limits,
            first,
            each,
            HOT,
            COLD,
            seed + number,
            delta,
        )
        if best is None or (lacks, step_ns) < (best.lacks, best.step_ns):
            best = Found(_splits(simulation, first), int(step_ns), proposals, 0.0, name, int(lacks))
    assert best is not None
    return replace(best, seconds=time.perf_counter() - begun)


def _splits(simulation: Simulation, first: Ints) -> tuple[Split, ...]:
    board = simulation.board
    return tuple(
        on(int(begin), sample=int(s), parameter=int(p), reduction=int(r), copies=int(c))
        for begin, s, p, r, c in zip(first, board.sample, board.parameter, board.reduction, board.copies, strict=True)
    )
