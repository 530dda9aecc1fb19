"""Incremental: repair a timeline after some layers were split anew (the delta simulation).

Every time that a beat makes is the greatest of the times that it was left (state and live results, see board), plus a
duration. So where all of those are later by the same time than they were, all that follows is later by that time. The
repair plays the beats that the changed layers touch, and goes on from each until all that is left to the beats after
it differs from what it was by one shift; from there to the next touched beat the shift alone is noted. Times are
integers: the timeline is exactly that of a full simulation.

A device or link that was free before anything that is still to come can begin does not matter, and is not compared.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

import numpy as np

from manyhands.simulate.step.arrays import BACKWARD, FORWARD, NEVER, WEIGHTS, copy
from manyhands.simulate.step.collectives import build_layer
from manyhands.simulate.step.execute import finish, play_beat
from manyhands.simulate.step.jit import compiled, inlined
from manyhands.simulate.step.lower_bound import least, soonest
from manyhands.simulate.step.resharding import build_edge


@inlined
def incremental_update(problem, board, changed, limit):
    """Repair the timeline of a board on which the layers marked as changed were placed anew; the end of the step.

    Gives up as soon as that is sure to be after `limit`, and then gives any time after it. `undo` brings back what was
    before, in either case.
    """
    which, later, touched = board.which, board.later, board.touched
    copy(board.was_which, which, 0)
    copy(board.was_later, later, 0)
    copy(board.was_edge, board.edge, 0)
    copy(board.was_built, board.built, 0)
    _touch(problem, board, changed)
    _build(problem, board)
    hurried, beats = limit < NEVER, touched.shape[0]
    if hurried and least(problem, board) > limit:
        return limit + 1
    beat = _next(touched, beats - touched.shape[0])
    while beat < beats:
        while beat < beats:
            which[beat], later[beat] = 1 - which[beat], 0
            play_beat(problem, board, beat)
            if hurried and soonest(problem, board, beat) > limit:
                return limit + 1
            beat += 1
            if beat == beats or touched[beat] or _concerns(problem, changed, beat - 1):
                continue
            settled, shift = _settled(problem, board, beat - 1)
            if settled:
                break
        else:
            break
        following = _next(touched, beat)
        copy(later[beat:following], later[beat:following], shift)
        beat = following
    return finish(problem, board)


@compiled
def undo(board):
    """Take the last change back; the changed layers are still to be placed as they were."""
    copy(board.which, board.was_which, 0)
    copy(board.later, board.was_later, 0)
    copy(board.edge, board.was_edge, 0)
    copy(board.built, board.was_built, 0)
    board.stale_edge[:] = board.stale_layer[:] = False


@compiled
def mark(problem, board, changed):
    """Mark what is to be built anew of changed layers."""
    for layer in range(changed.shape[0]):
        board.stale_layer[layer] = changed[layer]
    for edge in range(problem.source.shape[0]):
        board.stale_edge[edge] = changed[problem.source[edge]] or changed[problem.target[edge]]


@compiled
def _touch(problem, board, changed):
    """Mark the beats that have other durations or transfers than before."""
    touched = board.touched
    touched[:] = False
    for layer in range(changed.shape[0]):
        if changed[layer]:
            board.built[layer] = 1 - board.built[layer]
            _touch_layer(problem.beat, touched, layer, layer)
            for beat in problem.beat[WEIGHTS, :, layer]:
                if beat >= 0:
                    touched[beat] = True
    for edge in range(problem.source.shape[0]):
        if board.stale_edge[edge]:
            board.edge[edge] = 1 - board.edge[edge]
            _touch_layer(problem.beat, touched, problem.target[edge], problem.source[edge])


@compiled
def _touch_layer(beat, touched, forward, backward):
    """Mark the forward beats of one layer, and the backward beats of another."""
    for micro in range(beat.shape[1]):
        touched[beat[FORWARD, micro, forward]] = True
        if beat[BACKWARD, micro, backward] >= 0:
            touched[beat[BACKWARD, micro, backward]] = True


@inlined
def _build(problem, board):
    for layer in range(board.parts.shape[0]):
        if board.stale_layer[layer]:
            build_layer(problem, board, layer, board.built[layer])
            board.stale_layer[layer] = False
    for edge in range(problem.source.shape[0]):
        if board.stale_edge[edge]:
            build_edge(problem, board, edge, board.edge[edge])
            board.stale_edge[edge] = False


@compiled
def _next(touched, beat):
    while beat < touched.shape[0] and not touched[beat]:
        beat += 1
    return beat


@compiled
def _concerns(problem, changed, beat):
    """Whether what a beat leaves includes results or first devices of a changed layer, which lie elsewhere now."""
    layers, found = problem.layer, False
    for other in problem.live[beat]:
        found |= other >= 0 and changed[layers[other]]
    for layer in problem.fresh[beat]:
        found |= layer >= 0 and changed[layer]
    return found


@compiled
def _earliest(problem, board, beat, which, later):
    """Nothing after a beat begins before this: results that are taken later, and devices that begin anew."""
    least = np.int64(2**62)
    for other in problem.live[beat]:
        if other < 0:
            break
        layer, ends = problem.layer[other], board.ends[which[other], other]
        for part in range(board.parts[layer]):
            least = min(least, ends[board.device[layer, part]] + later[other])
    state = board.state[which[beat], beat]
    for layer in problem.fresh[beat]:
        if layer < 0:
            break
        for part in range(board.parts[layer]):
            least = min(least, state[board.device[layer, part]] + later[beat])
    return least


@compiled
def _settled(problem, board, beat):
    """Whether all that a beat leaves to later ones is as it was, but later by the same time; and by how much."""
    was_which, was_later = board.was_which, board.was_later
    new = _earliest(problem, board, beat, board.which, board.later)
    shift = new - _earliest(problem, board, beat, was_which, was_later)
    for other in problem.live[beat]:
        if other < 0:
            break
        layer = problem.layer[other]
        now, before = board.ends[board.which[other], other], board.ends[was_which[other], other]
        plus = was_later[other] + shift - board.later[other]
        for part in range(board.parts[layer]):
            if now[board.device[layer, part]] != before[board.device[layer, part]] + plus:
                return False, shift
    now, before = board.state[board.which[beat], beat], board.state[was_which[beat], beat]
    plus = was_later[beat] + shift - board.later[beat]
    least = new - board.later[beat]
    for number in range(now.shape[0]):
        if max(now[number], least) != max(before[number] + plus, least):
            return False, shift
    return True, shift
