"""Metropolis: try changes of a plan one after the other, and keep those under which the step is short enough.

What is tried was drawn beforehand (see simulate.search.proposals): here is the loop over a hundred thousand
simulations, without chance. A simulation alone is an attempt without tries, so that everything is compiled once.

A plan that does not fit in memory is left for any that lacks less, and taken from no other.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

import numpy as np

from manyhands.simulate.step.arrays import LAYER, NEVER, PLAN, WAY, copy, cut, place
from manyhands.simulate.step.incremental import incremental_update, mark, undo
from manyhands.simulate.step.jit import compiled, entry
from manyhands.simulate.step.lower_bound import least


@entry
def metropolis(problem, board, changed, degrees, devices, tries):
    """Place the changed layers and simulate, then try.

    Gives the end of the step; that of the best plan that was seen, which is left in tries.plans[0]; and the bytes that
    this one lacks on some device.
    """
    for layer in range(changed.shape[0]):
        if changed[layer]:
            cut(problem, board, layer, degrees[layer])
            place(problem, board, layer, devices[layer])
    mark(problem, board, board.everything if tries.full else changed)
    limit, number = np.int64(NEVER), -1
    now, lacks, best, best_lacks = limit, limit, tries.best, tries.lacks
    high = changed.shape[0]
    low = high - changed.shape[0]
    while True:
        lacking, new = _lacking(board.used, problem.capacity), limit + 1
        if lacking <= lacks:
            until = np.int64(NEVER) if tries.patient or lacking < lacks else limit
            new = incremental_update(problem, board, board.everything if tries.full else changed, until)
        if lacking < lacks or new <= limit:
            now, lacks = new, lacking
            if number >= 0:
                _copy_plan(tries.plan, board.wanted, changed)
            if lacks < best_lacks or (lacks == best_lacks and now < best):
                best, best_lacks = now, lacks
                _copy_plan(tries.plans[0], tries.plan, board.everything)
        else:
            if lacking <= lacks:
                undo(board)
            _take(problem, board, changed, tries.plan, low, high, True)
        changed[low:high] = False
        while True:
            number += 1
            if number == tries.slack.shape[0]:
                return now, best, best_lacks
            low, high = tries.change[number, 0], tries.change[number, 1]
            if not _want(board, tries, number, changed):
                continue
            limit = now + np.int64(tries.slack[number] * now)
            _take(problem, board, changed, board.wanted, low, high, False)
            mark(problem, board, board.everything if tries.full else changed)
            if tries.patient or lacks > 0 or least(problem, board) <= limit:
                break
            _take(problem, board, changed, tries.plan, low, high, False)
            changed[low:high] = False
        _take(problem, board, changed, board.wanted, low, high, True)


@compiled
def _lacking(used, capacity):
    """Bytes that the fullest device lacks."""
    most = np.int64(0)
    for needed in used:
        most = max(most, needed - capacity)
    return most


@compiled
def _want(board, tries, number, changed):
    """Note the splits that are to be tried; whether any layer gets another one."""
    low, high, source, which, first = tries.change[number]
    some = False
    for layer in range(low, high):
        wanted = board.wanted[layer]
        if source == WAY:
            copy(wanted[:4], tries.ways[which], 0)
            wanted[4] = first
        elif source == LAYER:
            copy(wanted, tries.plan[which], 0)
        elif source == PLAN:
            copy(wanted, tries.plans[which, layer], 0)
        else:
            copy(wanted, tries.plan[layer], 0)
            _shift(wanted, which)
        allowed, same = True, True
        for each in range(3):
            allowed &= wanted[each] <= tries.most[layer, each]
        for each in range(5):
            same &= wanted[each] == tries.plan[layer, each]
        changed[layer] = allowed and not same
        some |= changed[layer]
    return some


@compiled
def _shift(wanted, factor):
    """Cut samples finer by a factor, and the first of reduction, parameter and copies that can be coarser by it; for a
    factor below zero samples coarser, and the one of the others that is cut finest already."""
    by = abs(factor)
    if factor > 0:
        at = 2 if wanted[2] % by == 0 else 1 if wanted[1] % by == 0 else 3
        if wanted[at] % by == 0:
            wanted[at] //= by
            wanted[0] *= by
    elif wanted[0] % by == 0:
        at = 1
        for each in range(2, 4):
            if wanted[each] > wanted[at]:
                at = each
        wanted[0] //= by
        wanted[at] *= by


@compiled
def _take(problem, board, changed, splits, low, high, placed):
    """Give changed layers their splits, and their parts their devices or not yet."""
    for layer in range(low, high):
        if changed[layer]:
            cut(problem, board, layer, splits[layer])
            if placed:
                place(problem, board, layer, board.numbers[splits[layer, 4] :])


@compiled
def _copy_plan(target, source, changed):
    for layer in range(changed.shape[0]):
        if changed[layer]:
            copy(target[layer], source[layer], 0)
