"""Play: carry out the beats of a step one after the other."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

import numpy as np

from manyhands.simulate.board import FORWARD, compiled
from manyhands.simulate.transfer import all_reduce, build_edge, members


@compiled
def _link(problem, level, device):
    """Where the state of the link lies that joins a device's group to the others of a level."""
    return problem.first[level] + device // problem.size[level]


@compiled
def _collective(problem, state, ready, duration, span, givers, takers):
    """Play one transfer: it waits for its ports and links, and keeps them busy until its end."""
    width = problem.devices
    start = ready
    both = givers.shape[0] > 1 or takers.shape[0] > 1  # a collective: all give and take
    for side in range(2):
        devices = givers if side == 0 else takers
        for device in devices:
            if both or side == 1:
                start = max(start, state[width + device])
            if both or side == 0:
                start = max(start, state[2 * width + device])
            if not problem.overlap:
                start = max(start, state[device])
            for level in range(1, problem.size.shape[0]):
                if span >> level & 1:
                    start = max(start, state[_link(problem, level, device)])
    end = start + duration
    for side in range(2):
        devices = givers if side == 0 else takers
        for device in devices:
            if both or side == 1:
                state[width + device] = end
            if both or side == 0:
                state[2 * width + device] = end
            if not problem.overlap:
                state[device] = end
            for level in range(1, problem.size.shape[0]):
                if span >> level & 1:
                    state[_link(problem, level, device)] = end
    return end


@compiled
def _move(problem, board, state, edge, direction, beat, arrival):
    """Play an edge's transfers, those first that are ready first; `arrival` is when a device has all it takes."""
    buffer = board.edge[edge]
    a, b = problem.source[edge], problem.target[edge]
    from_, to, side = (a, b, 0) if direction == FORWARD else (b, a, 1)
    before = problem.beat[direction, problem.micro[beat], from_]
    ends, later = board.ends[board.which[before], before], board.later[before]
    comp, move = board.comp[buffer, edge], board.move[buffer, edge, direction]
    if not board.moves[buffer, edge, direction]:
        for part in range(board.parts[to]):
            device = board.device[to, part]
            arrival[device] = max(arrival[device], ends[device] + later)
        return
    count = board.components[buffer, edge]
    ready = np.zeros(count, dtype=np.int64)
    for part in range(board.parts[from_]):
        number = comp[side, part]
        ready[number] = max(ready[number], ends[board.device[from_, part]] + later)
    arrived = board.arrived[board.which[beat], 2 * problem.micro[beat] + direction, edge]
    for number in _in_order(ready):
        if move[number] > 0:
            span = board.span[buffer, edge, number]
            givers, takers = members(board, buffer, edge, side, number), members(board, buffer, edge, 1 - side, number)
            arrived[number] = _collective(problem, state, ready[number], move[number], span, givers, takers)
    for part in range(board.parts[to]):
        number, device = comp[1 - side, part], board.device[to, part]
        when = arrived[number] if move[number] > 0 else ends[device] + later
        arrival[device] = max(arrival[device], when)


@compiled
def _in_order(ready):
    """The numbers of components, those first that are ready first; of equals the lower number."""
    for number in range(1, ready.shape[0]):
        if ready[number] < ready[number - 1]:
            return np.argsort(ready, kind="mergesort")
    return np.arange(ready.shape[0])


@compiled
def _together(problem, board, state, layer, by_sample, size, ends, tally):
    """Have the parts of a layer add up: those that differ in their samples, or those of a reduction."""
    parts = board.parts[layer]
    copies, reduction = board.copies[layer], board.reduction[layer]
    members = board.sample[layer] if by_sample else reduction
    stride = parts // members if by_sample else copies
    group = np.empty(members, dtype=np.int64)
    for part in range(parts):
        if part // stride % members == 0:
            ready = np.int64(0)
            for number in range(members):
                group[number] = board.device[layer, part + number * stride]
                ready = max(ready, ends[group[number]])
            duration, span = all_reduce(problem, size, group, tally)
            measured = problem.sync[
                layer,
                problem.degree[board.sample[layer]],
                problem.degree[board.parameter[layer] * reduction],
            ]
            if by_sample and measured >= 0 and size == problem.weights[layer] / (board.parameter[layer] * reduction):
                duration = max(measured, 1)
            end = _collective(problem, state, ready, duration, span, group, group)
            for device in group:
                ends[device] = end


@compiled
def play_beat(problem, board, state, beat, tally):
    """Play one beat from the state before it, and leave the state after it."""
    width, layer, direction = problem.devices, problem.layer[beat], problem.direction[beat]
    arrival = np.zeros(width, dtype=np.int64)
    edges = problem.into[layer] if direction == FORWARD else problem.out[layer]
    for edge in edges:
        if edge < 0:
            break
        if direction == FORWARD or problem.back[edge]:
            _move(problem, board, state, edge, direction, beat, arrival)
    k = problem.degree[board.sample[layer]]
    q = problem.degree[board.parameter[layer] * board.reduction[layer]]
    duration = problem.forward[layer, k, q] if direction == FORWARD else problem.backward[layer, k, q]
    computed, ends = board.computed[board.which[beat], beat], board.ends[board.which[beat], beat]
    for part in range(board.parts[layer]):
        device = board.device[layer, part]
        computed[device] = ends[device] = state[device] = max(state[device], arrival[device]) + duration
    if problem.shared[layer] and board.sample[layer] > 1:
        _together(problem, board, state, layer, True, problem.shared[layer] / board.parameter[layer], ends, tally)
    if direction == FORWARD and board.reduction[layer] > 1:
        pieces = board.sample[layer] * board.parameter[layer]
        _together(problem, board, state, layer, False, problem.output[layer] / pieces, ends, tally)
    if problem.last[beat]:
        synced = board.synced[board.which[beat], layer]
        for part in range(board.parts[layer]):
            synced[board.device[layer, part]] = ends[board.device[layer, part]]
        if board.sample[layer] > 1 and problem.weights[layer] and not problem.late:
            size = problem.weights[layer] / (board.parameter[layer] * board.reduction[layer])
            _together(problem, board, state, layer, True, size, synced, tally)


@compiled
def finish(problem, board, tally):
    """Reduce what was left for the end, update the weights; the end of the step."""
    width, layers = problem.devices, board.parts.shape[0]
    begun, done = board.begun, board.done
    begun[:] = 0
    for layer in range(layers):
        beat = problem.synced[layer]
        if beat < 0:
            continue
        synced, later = board.synced[board.which[beat], layer], board.later[beat]
        for part in range(board.parts[layer]):
            device = board.device[layer, part]
            begun[device] = max(begun[device], synced[device] + later)
    if problem.late:
        state = np.zeros(board.state.shape[2], dtype=np.int64)
        state[:width] = begun
        for layer in range(layers - 1, -1, -1):
            if board.sample[layer] > 1 and problem.weights[layer]:
                size = problem.weights[layer] / (board.parameter[layer] * board.reduction[layer])
                _together(problem, board, state, layer, True, size, begun, tally)
    done[:] = begun
    for layer in range(layers):
        work = problem.update[layer, problem.degree[board.parameter[layer] * board.reduction[layer]]]
        for part in range(board.parts[layer]):
            done[board.device[layer, part]] += work
    return done.max()


@compiled
def full(problem, board, tally):
    """Build and play everything; gives the end of the step."""
    for edge in range(problem.source.shape[0]):
        build_edge(problem, board, edge, board.edge[edge], tally)
    board.later[:] = 0
    state = np.zeros(board.state.shape[2], dtype=np.int64)
    for beat in range(problem.layer.shape[0]):
        play_beat(problem, board, state, beat, tally)
        board.state[board.which[beat], beat] = state
    return finish(problem, board, tally)
