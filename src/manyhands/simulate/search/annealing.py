"""Annealing: search for a faster split of every layer, from several starts."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from manyhands.plan.sharding import Split
from manyhands.simulate.search.proposals import draw
from manyhands.simulate.search.space import Space, from_table, table
from manyhands.simulate.step.arrays import NEVER, Problem, Tries
from manyhands.simulate.step.simulation import Simulation

__all__ = ["Found", "Space", "default_proposals", "search"]

ROUND = 20_000  # changes that are drawn at once


@dataclass(frozen=True)
class Found:
    """The best plan of a search, and what the search took."""

    splits: tuple[Split, ...]
    step_ns: int
    proposals: int
    seconds: float
    start: str  # the name of the start from which it was found
    lacks: int = 0  # bytes by which it does not fit on some device


def default_proposals(layers: int, devices: int) -> int:
    """How many proposals a search is given, all starts together.

    Choices grow with the layers and the devices, up to where a proposal takes so long that fewer must do. Ten times as
    many find less than 1 % more (see benchmarks/results/search.md).
    """
    each = layers + 20
    return max(100 * each * min(max(devices, 4), 64) * 256 // max(devices, 256), 1200 * each if devices > 64 else 0)


def search(
    problem: Problem,
    space: Space,
    starts: Mapping[str, Sequence[Split]],
    proposals: int,
    seed: int = 0,
    delta: bool = True,
    patient: bool = False,
) -> Found:
    """Walk from each start, with as many proposals for each; the best of all.

    Without `delta` every proposal is built and played as a whole. A patient search plays also what it has seen to be
    too slow to the end. All find the same.
    """
    begun = time.perf_counter()
    tables = {name: table(splits) for name, splits in starts.items()}
    best: Found | None = None
    for number, (name, splits) in enumerate(starts.items()):
        simulation, rng = Simulation(problem, splits), np.random.default_rng([seed, number])
        step_ns = lacks = NEVER
        plan, plans = tables[name].copy(), np.stack([tables[name], *tables.values(), *space.plans])
        each = proposals // len(starts)
        for low in range(0, max(each, 1), ROUND):
            change, slack = draw(rng, space, len(plans), low, min(low + ROUND, each), each)
            tries = Tries(change, slack, space.ways, space.limits, plan, plans, step_ns, lacks, not delta, patient)
            step_ns, lacks = simulation.attempt(tries)
        if best is None or (lacks, step_ns) < (best.lacks, best.step_ns):
            best = Found(from_table(plans[0]), step_ns, proposals, 0.0, name, lacks)
    assert best is not None
    return replace(best, seconds=time.perf_counter() - begun)
