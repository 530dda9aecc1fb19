"""Change: repair a timeline after some layers were split anew (the delta simulation).

Every time that a beat makes is the greatest of the times that it was left (state and live results, see board), plus a
duration. So where all of those are later by the same time than they were, all that follows is later by that time. The
repair plays the beats that the changed layers touch, and goes on from each until all that is left to the beats after
it differs from what it was by one shift; from there to the next touched beat the shift alone is noted. Times are
integers: the timeline is exactly that of a full simulation.

A device or link that was free before anything that is still to come can begin does not matter, and is not compared.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

import numpy as np

from manyhands.simulate.board import BACKWARD, FORWARD, compiled
from manyhands.simulate.play import finish, play_beat
from manyhands.simulate.transfer import build_edge


@compiled
def change(problem, board, changed, tally):
    """Repair the timeline of a board on which the layers marked as changed were placed anew; the end of the step.

    What was before stays in the other buffers: `board.which`, `later` and `edge` as they were bring it back.
    """
    was_which, was_later = board.which.copy(), board.later.copy()
    touched = _touch(problem, board, changed, tally)
    beats = touched.shape[0]
    state = np.zeros(board.state.shape[2], dtype=np.int64)
    beat = _next(touched, 0)
    while beat < beats:
        if beat > 0:
            state[:] = board.state[board.which[beat - 1], beat - 1] + board.later[beat - 1]
        while beat < beats:
            board.which[beat], board.later[beat] = 1 - board.which[beat], 0
            play_beat(problem, board, state, beat, tally)
            board.state[board.which[beat], beat] = state
            beat += 1
            if beat == beats or touched[beat] or _concerns(problem, changed, beat - 1):
                continue
            settled, shift = _settled(problem, board, beat - 1, was_which, was_later)
            if settled:
                break
        else:
            break
        following = _next(touched, beat)
        board.later[beat:following] += shift
        beat = following
    return finish(problem, board, tally)


@compiled
def _touch(problem, board, changed, tally):
    """Build the edges of changed layers; the beats that have another duration, or other transfers, than before."""
    touched = np.zeros(problem.layer.shape[0], dtype=np.bool_)
    for layer in range(changed.shape[0]):
        if changed[layer]:
            _touch_layer(problem, touched, FORWARD, layer)
            _touch_layer(problem, touched, BACKWARD, layer)
    for edge in range(problem.source.shape[0]):
        source, target = problem.source[edge], problem.target[edge]
        if changed[source] or changed[target]:
            board.edge[edge] = 1 - board.edge[edge]
            build_edge(problem, board, edge, board.edge[edge], tally)
            _touch_layer(problem, touched, FORWARD, target)
            _touch_layer(problem, touched, BACKWARD, source)
    return touched


@compiled
def _touch_layer(problem, touched, direction, layer):
    for micro in range(problem.beat.shape[1]):
        if problem.beat[direction, micro, layer] >= 0:
            touched[problem.beat[direction, micro, layer]] = True


@compiled
def _next(touched, beat):
    while beat < touched.shape[0] and not touched[beat]:
        beat += 1
    return beat


@compiled
def _concerns(problem, changed, beat):
    """Whether what a beat leaves includes results or first devices of a changed layer, which lie elsewhere now."""
    for other in problem.live[beat]:
        if other < 0:
            break
        if changed[problem.layer[other]]:
            return True
    for layer in problem.fresh[beat]:
        if layer < 0:
            break
        if changed[layer]:
            return True
    return False


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
def _settled(problem, board, beat, was_which, was_later):
    """Whether all that a beat leaves to later ones is as it was, but later by the same time; and by how much."""
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
