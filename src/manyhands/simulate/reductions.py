"""Reductions: which parts of a layer add up together, and how long that takes them, waiting apart."""

from manyhands.simulate.board import FORWARD, GRADIENTS, REDUCTION, SHARED, WEIGHTS, Board, Problem

Taken = dict[int, int]  # nanoseconds by device


def within(problem: Problem, board: Board, layer: int, direction: int) -> Taken:
    """What comes between a layer's computation and its results: statistics of batch norms, sums of a reduction."""
    taken: Taken = {}
    if problem.shared[layer] and board.sample[layer] > 1 and direction != WEIGHTS:
        _add(taken, board, layer, SHARED)
    if direction == FORWARD and board.reduction[layer] > 1:
        _add(taken, board, layer, REDUCTION)
    return taken


def gradients(problem: Problem, board: Board, layer: int) -> Taken:
    """Adding up the gradients of a layer's weights."""
    taken: Taken = {}
    if board.sample[layer] > 1 and problem.weights[layer] and problem.synced[layer] >= 0:
        _add(taken, board, layer, GRADIENTS)
    return taken


def _add(taken: Taken, board: Board, layer: int, kind: int) -> None:
    """Parts that differ in their samples alone add up, or in what they reduce alone; see transfer.build_layer."""
    parts = int(board.parts[layer])
    members = int(board.reduction[layer] if kind == REDUCTION else board.sample[layer])
    stride = int(board.copies[layer]) if kind == REDUCTION else parts // members
    durations = board.sum[board.built[layer], layer, kind]
    for part, device in enumerate(board.device[layer, :parts].tolist()):
        group = part // (members * stride) * stride + part % stride
        taken[device] = taken.get(device, 0) + int(durations[group])
