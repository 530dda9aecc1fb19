"""Dynamic programming: the fastest plan of a chain of layers, by dynamic programming, where a step's time is a sum.

It is one where a device does one thing at a time (no overlap), over links of one level, and where neighbouring layers
hand over **in step**: all devices of a layer end together, and so do the transfers to the next. Then the time is

    sum of each layer's passes, sums, update  +  sum of each two neighbours' transfers

and the best plan up to a layer's split is that up to some split of the layer before it. Plans are those of a search's
space that begin at the first device and hand over in step. A search also looks at the others, so it may find a faster
one; this shows how near it comes.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from manyhands.errors import PlanError
from manyhands.plan.sharding import Split
from manyhands.simulate.search.space import Space, from_table
from manyhands.simulate.step.arrays import BACKWARD, FORWARD, GRADIENTS, NEVER, REDUCTION, SHARED, Ints, Problem
from manyhands.simulate.step.simulation import Simulation


class Exact(NamedTuple):
    """The fastest plan of those that hand over in step, and how many there were to choose from."""

    splits: tuple[Split, ...]
    step_ns: int
    plans: int


def exact(problem: Problem, space: Space) -> Exact:
    """Raises where the step is no sum, and where what is fastest does not fit in memory."""
    _refuse(problem)
    layers = len(problem.weights)
    chosen = [_splits(space, layer) for layer in range(layers)]
    trial = Simulation(problem, [splits[0] for splits in chosen])
    best = np.array(list(_passes(trial, 0, chosen[0])))
    plans = [1] * len(chosen[0])
    came: list[Ints] = []
    for layer in range(1, layers):
        moves = _moves(trial, layer, chosen)
        total = best[:, None] + moves
        came.append(total.argmin(axis=0))
        plans = [sum(plans[i] for i in np.flatnonzero(column < NEVER // 2)) for column in moves.T]
        best = total.min(axis=0) + np.array(list(_passes(trial, layer, chosen[layer])))
    at = int(best.argmin())
    step_ns, path = int(best[at]), [at]
    for back in reversed(came):
        path.append(int(back[path[-1]]))
    splits = tuple(chosen[layer][number] for layer, number in enumerate(reversed(path)))
    played = Simulation(problem, splits)
    lacks = int(played.board.used.max()) - problem.capacity
    if lacks > 0:
        raise PlanError(f"the fastest plan lacks {lacks} bytes on a device: use a search, which looks at memory")
    assert played.step_ns == step_ns, "a step that is no sum"
    return Exact(splits, step_ns, sum(plans))


def _refuse(problem: Problem) -> None:
    layers = len(problem.weights)
    chain = [(number, number + 1) for number in range(layers - 1)]
    reasons = {
        "transfers overlap with computation": problem.overlap,
        "there are links of several levels": len(problem.size) > 1 and problem.devices > problem.size[1],
        "there are micro-batches": problem.beat.shape[1] > 1,
        "layers form no chain": list(zip(problem.source.tolist(), problem.target.tolist(), strict=True)) != chain,
    }
    for reason, holds in reasons.items():
        if holds:
            raise PlanError(f"no exact search: {reason}; use a search by proposals")


def _splits(space: Space, layer: int) -> tuple[Split, ...]:
    ways = space.ways[space.starts[layer] : space.starts[layer + 1]]
    return from_table(np.pad(ways, ((0, 0), (0, 1))))


def _passes(trial: Simulation, layer: int, splits: tuple[Split, ...]) -> Iterator[int]:
    """What a layer takes by itself under each split."""
    problem, board = trial.problem, trial.board
    for split in splits:
        trial.change({layer: split})
        sums = board.sum_least[board.built[layer], layer]
        taken = int(board.duration[FORWARD, layer] + sums[SHARED] + sums[REDUCTION])
        taken += int(problem.update[layer, problem.degree[split.parameter * split.reduction]])
        if problem.beat[BACKWARD, 0, layer] >= 0:
            taken += int(board.duration[BACKWARD, layer] + sums[SHARED] + sums[GRADIENTS])
        yield taken


def _moves(trial: Simulation, layer: int, chosen: list[tuple[Split, ...]]) -> Ints:
    """What transfers between a layer and the one before it take, both ways, for each two splits; NEVER / 2 or more
    where they do not hand over in step."""
    found = np.zeros((len(chosen[layer - 1]), len(chosen[layer])), dtype=np.int64)
    for one, before in enumerate(chosen[layer - 1]):
        trial.change({layer - 1: before})
        for two, split in enumerate(chosen[layer]):
            trial.change({layer: split})
            found[one, two] = _move(trial, layer - 1, FORWARD)
            if trial.problem.back[layer - 1]:
                found[one, two] += _move(trial, layer - 1, BACKWARD)
    return found


def _move(trial: Simulation, edge: int, direction: int) -> int:
    """In step: all components take as long, and no device is in two."""
    board = trial.board
    buffer = board.edge[edge]
    count = int(board.components[buffer, edge])
    durations = board.move[buffer, edge, direction, :count]
    if durations.min() != durations.max():
        return NEVER // 2
    if count > 1 and durations[0] > 0:
        owner: dict[int, int] = {}
        for side in range(2):
            begin = board.begin[buffer, edge, side]
            for number in range(count):
                for device in board.member[buffer, edge, side, begin[number] : begin[number + 1]].tolist():
                    if owner.setdefault(device, number) != number:
                        return NEVER // 2
    return int(durations[0])
