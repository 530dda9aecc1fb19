"""Reductions: which parts of a layer add up together, and how long that takes them, waiting apart."""

import numpy as np

from manyhands.simulate.board import FORWARD, Board, Ints, Problem
from manyhands.simulate.transfer import all_reduce

Taken = dict[int, int]  # nanoseconds by device


def within(problem: Problem, board: Board, layer: int, direction: int) -> Taken:
    """What comes between a layer's computation and its results: statistics of batch norms, sums of a reduction."""
    taken: Taken = {}
    if problem.shared[layer] and board.sample[layer] > 1:
        _add(taken, problem, board, layer, True, problem.shared[layer] / board.parameter[layer])
    if direction == FORWARD and board.reduction[layer] > 1:
        pieces = board.sample[layer] * board.parameter[layer]
        _add(taken, problem, board, layer, False, problem.output[layer] / pieces)
    return taken


def gradients(problem: Problem, board: Board, layer: int) -> Taken:
    """Adding up the gradients of a layer's weights."""
    taken: Taken = {}
    if board.sample[layer] > 1 and problem.weights[layer] and problem.synced[layer] >= 0:
        pieces = board.parameter[layer] * board.reduction[layer]
        measured = int(problem.sync[layer, problem.degree[board.sample[layer]], problem.degree[pieces]])
        _add(taken, problem, board, layer, True, problem.weights[layer] / pieces, measured)
    return taken


def _add(
    taken: Taken, problem: Problem, board: Board, layer: int, by_sample: bool, size: float, measured: int = -1
) -> None:
    scratch = np.zeros((2, problem.devices), dtype=np.int64)
    for group in _groups(board, layer, by_sample):
        duration = int(all_reduce(problem, float(size), group, scratch)[0]) if measured < 0 else max(measured, 1)
        for device in group:
            taken[int(device)] = taken.get(int(device), 0) + duration


def _groups(board: Board, layer: int, by_sample: bool) -> list[Ints]:
    """The devices of parts that differ in their samples alone, or in what they reduce alone."""
    parts = int(board.parts[layer])
    members = int(board.sample[layer] if by_sample else board.reduction[layer])
    stride = parts // members if by_sample else int(board.copies[layer])
    firsts = [part for part in range(parts) if part // stride % members == 0]
    return [board.device[layer][[first + number * stride for number in range(members)]] for first in firsts]
