"""Lower bound: when a step ends at the earliest, seen before it is played.

A chain of beats takes at least what each computes and what is certain of the transfers between them. A search spares
itself the rest of a plan that cannot end in time, and mostly all of it.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

import numpy as np

from manyhands.simulate.step.arrays import BACKWARD, FORWARD, GRADIENTS, NEVER, REDUCTION, SHARED, WEIGHTS
from manyhands.simulate.step.jit import compiled


@compiled
def least(problem, board):
    """Note how long it takes at least from the end of each beat to the end of the step; and all that the step takes.

    Each beat is followed by those that take its result, and a pass by the same devices' next one.
    """
    after, rest, whole = board.after, board.rest, np.int64(0)
    rest[:] = 0
    for layer in range(board.parts.shape[0]):
        _layer(problem, board, layer)
    for edge in range(problem.source.shape[0]):
        _edge(problem, board, edge)
    for number in range(after.shape[0]):
        beat = after.shape[0] - 1 - number
        layer, direction, micro = problem.layer[beat], problem.direction[beat], problem.micro[beat]
        longest = np.int64(0)
        if problem.last[beat]:
            work = problem.update[layer, problem.degree[board.parameter[layer] * board.reduction[layer]]]
            longest = board.least_sync[layer] + work
            for level in range(rest.shape[0]):
                rest[level] += _busy(problem, board, layer, level)
                longest = max(longest, rest[level])
        for edge in problem.out[layer] if direction == FORWARD else problem.into[layer]:
            if edge >= 0 and (direction == FORWARD or (problem.back[edge] and direction == BACKWARD)):
                taker = problem.target[edge] if direction == FORWARD else problem.source[edge]
                then = board.least_move[direction, edge] + board.least_pass[direction, taker]
                if problem.last[beat] and not problem.late and board.least_move[direction, edge] > 0:
                    then += board.least_sync[layer]  # which has the ports first
                longest = max(longest, then + after[problem.beat[direction, micro, taker]])
        if direction != WEIGHTS and problem.beat[direction + 1, micro, layer] >= 0:
            then = board.least_pass[direction + 1, layer] + after[problem.beat[direction + 1, micro, layer]]
            longest = max(longest, then)
        after[beat] = longest
        whole = max(whole, longest + board.least_pass[direction, layer])
    return whole


@compiled
def soonest(problem, board, beat):
    """The step cannot end before this, after a beat that was played."""
    layer, ends, first = problem.layer[beat], board.ends[board.which[beat], beat], np.int64(NEVER)
    for device in board.device[layer, : board.parts[layer]]:
        first = min(first, ends[device])
    return first + board.after[beat]


@compiled
def _layer(problem, board, layer):
    """A layer's passes with what its parts add up, and its reduction of gradients with the update."""
    board.least_pass[WEIGHTS, layer] = board.duration[WEIGHTS, layer]
    if not board.stale_layer[layer]:
        sums = board.sum_least[board.built[layer], layer]
        board.least_pass[FORWARD, layer] = board.duration[FORWARD, layer] + sums[SHARED] + sums[REDUCTION]
        board.least_pass[BACKWARD, layer] = board.duration[BACKWARD, layer] + sums[SHARED]
        board.least_sync[layer] = sums[GRADIENTS]
        return
    sample, parameter, reduction = board.sample[layer], board.parameter[layer], board.reduction[layer]
    forward, backward = board.duration[FORWARD, layer], board.duration[BACKWARD, layer]
    sync = np.int64(0)
    if sample > 1 and problem.shared[layer]:
        shared = _sum(problem, problem.shared[layer] / parameter, sample)
        forward += shared
        backward += shared
    if reduction > 1:
        forward += _sum(problem, problem.summed[layer] / (sample * parameter), reduction)
    if sample > 1 and problem.weights[layer]:
        measured = problem.sync[layer, problem.degree[sample], problem.degree[parameter * reduction]]
        sync = _sum(problem, problem.weights[layer] / (parameter * reduction), sample) if measured < 0 else measured
    board.least_pass[FORWARD, layer], board.least_pass[BACKWARD, layer] = forward, backward
    board.least_sync[layer] = sync


@compiled
def _busy(problem, board, layer, level):
    """For how long a layer's gradients keep the port of device 0 busy, or its group's link of a level."""
    if not board.stale_layer[layer]:
        return board.busy[board.built[layer], layer, level]
    sample, pieces = board.sample[layer], board.parameter[layer] * board.reduction[layer]
    measured = problem.sync[layer, problem.degree[sample], problem.degree[pieces]]
    if level > 0 or sample == 1 or measured >= 0 or sample * pieces * board.copies[layer] < problem.devices:
        return 0
    return _sum(problem, problem.weights[layer] / pieces, sample)


@compiled
def _sum(problem, size, number):
    """What an all-reduce takes on a device's own port."""
    return _ns(2.0 * size * (number - 1) / number, problem.rate[0])


@compiled
def _edge(problem, board, edge):
    """What a transfer takes where no device has as much as each needs."""
    if not board.stale_edge[edge]:
        fastest = board.move_least[board.edge[edge], edge]
        board.least_move[FORWARD, edge], board.least_move[BACKWARD, edge] = fastest[FORWARD], fastest[BACKWARD]
        return
    a, b = problem.source[edge], problem.target[edge]
    have = problem.output[a] / (board.sample[a] * board.parameter[a])
    columns = board.parameter[b] if problem.same[b] else board.reduction[b]
    need = problem.output[a] / (board.sample[b] * columns)
    forward = _ns(need - have, problem.rate[0])
    board.least_move[FORWARD, edge] = forward
    board.least_move[BACKWARD, edge] = max(forward, _ns(have - need, problem.rate[0]))


@compiled
def _ns(volume, rate):
    """Rather too little by two than too much by rounding."""
    return max(np.int64(volume / rate) - 2, 0)
