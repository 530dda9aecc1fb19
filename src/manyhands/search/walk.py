"""Walk: the Markov chain over plans, compiled.

A step proposes another split for one layer, or one split for a run of neighbouring layers, simulates, and goes there if
that is faster, or else with a chance that falls with the loss and with the time that the walk has left:

    chance = exp(-loss / temperature)        loss: share of the step's time

A plan that does not fit in memory is left for any that lacks less, and taken from no other.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

import numpy as np

from manyhands.simulate.board import compiled, place
from manyhands.simulate.change import change
from manyhands.simulate.play import full

LONGEST_RUN = 6  # layers that are changed at once


@compiled
def walk(problem, board, ways, starts, limits, first, proposals, hot, cold, seed, delta):
    """Walk from the plan on the board; the best time, and the bytes that the best plan lacks on some device.

    ways[starts[l]:starts[l + 1]] are the degrees to which layer l can be cut, limits[l] the most of each; first[l] is
    the device on which its parts begin, and in the end holds the best plan's, as the board does.
    """
    np.random.seed(seed)
    layers, devices = board.parts.shape[0], problem.devices
    tally = np.zeros((2, devices), dtype=np.int64)
    used = _memory(problem, board)
    now = full(problem, board, tally)
    lacks = max(used.max() - problem.capacity, 0)
    best, best_lacks = now, lacks
    degrees = np.empty((layers, 4), dtype=np.int64)
    for layer in range(layers):
        degrees[layer] = _degrees(board, layer)
    best_degrees, best_first = degrees.copy(), first.copy()
    changed = np.zeros(layers, dtype=np.bool_)
    for number in range(proposals):
        wanted, begin, low, high = _propose(board, ways, starts, limits, first, degrees, devices)
        changed[:] = False
        for layer in range(low, high):
            changed[layer] = _allowed(wanted, limits[layer]) and not (
                np.array_equal(wanted, degrees[layer]) and begin == first[layer]
            )
        if not changed.any():
            continue
        which, later, edge = board.which.copy(), board.later.copy(), board.edge.copy()
        for layer in range(low, high):
            if changed[layer]:
                _put(problem, board, used, layer, wanted, begin)
        new_lacks = max(used.max() - problem.capacity, 0)
        if new_lacks <= lacks:
            new = change(problem, board, changed, tally) if delta else full(problem, board, tally)
            loss = (new - now) / now
            temperature = hot * (cold / hot) ** (number / proposals)
            if new_lacks < lacks or loss <= 0 or np.random.random() < np.exp(-loss / temperature):
                now, lacks = new, new_lacks
                for layer in range(low, high):
                    if changed[layer]:
                        degrees[layer], first[layer] = wanted, begin
                if lacks < best_lacks or (lacks == best_lacks and new < best):
                    best, best_lacks = new, lacks
                    best_degrees[:], best_first[:] = degrees, first
                continue
        board.which[:], board.later[:], board.edge[:] = which, later, edge
        for layer in range(low, high):
            if changed[layer]:
                _put(problem, board, used, layer, degrees[layer], first[layer])
    first[:] = best_first
    for layer in range(layers):
        _put(problem, board, used, layer, best_degrees[layer], first[layer])
    return best, best_lacks


@compiled
def _degrees(board, layer):
    return np.array([board.sample[layer], board.parameter[layer], board.reduction[layer], board.copies[layer]])


@compiled
def _memory(problem, board):
    """Bytes that each device needs."""
    used = np.zeros(problem.devices, dtype=np.int64)
    for layer in range(board.parts.shape[0]):
        _count(problem, board, used, layer, 1)
    return used


@compiled
def _count(problem, board, used, layer, sign):
    pieces = problem.degree[board.parameter[layer] * board.reduction[layer]]
    bytes_ = sign * problem.memory[layer, problem.degree[board.sample[layer]], pieces]
    for part in range(board.parts[layer]):
        used[board.device[layer, part]] += bytes_


@compiled
def _put(problem, board, used, layer, degrees, begin):
    _count(problem, board, used, layer, -1)
    parts = degrees[0] * degrees[1] * degrees[2] * degrees[3]
    split = (degrees[0], degrees[1], degrees[2], degrees[3])
    place(board, layer, split, np.arange(begin, begin + parts))
    _count(problem, board, used, layer, 1)


@compiled
def _allowed(degrees, limits):
    return degrees[0] <= limits[0] and degrees[1] <= limits[1] and degrees[2] <= limits[2]


@compiled
def _propose(board, ways, starts, limits, first, degrees, devices):
    """A split, the device where it begins, and the layers from low to before high that are to have it."""
    layers = starts.shape[0] - 1
    layer = np.random.randint(layers)
    high = layer + 1
    if np.random.random() < 0.3:
        high = min(layer + np.random.randint(2, LONGEST_RUN + 1), layers)
    if np.random.random() < 0.3:  # as a neighbour has it
        other = layer + (1 if np.random.random() < 0.5 else -1)
        if 0 <= other < layers:
            return degrees[other].copy(), first[other], layer, high
    wanted = ways[np.random.randint(starts[layer], starts[layer + 1])]
    parts = wanted[0] * wanted[1] * wanted[2] * wanted[3]
    blocks = devices // parts
    begin = 0 if np.random.random() < 0.5 else parts * np.random.randint(blocks)
    return wanted.copy(), begin, layer, high
