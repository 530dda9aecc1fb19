"""Execute: carry out the beats of a step one after the other."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

import numpy as np

from manyhands.simulate.step.arrays import ALIKE, COMPUTE, FORWARD, IN, OUT, REDUCTION, SHARED, WEIGHTS, copy
from manyhands.simulate.step.collectives import gather_group, groups_of
from manyhands.simulate.step.jit import compiled, inlined


@compiled
def _collective(state, slot, overlap, ready, duration, span, givers, takers):
    """Play one transfer: it waits for its ports and links, and keeps them busy until its end.

    A collective holds up all devices where they do one thing at a time. Who sends to one other goes on meanwhile, and
    has the work of sending after what it has begun.
    """
    both = givers.shape[0] > 1 or takers.shape[0] > 1  # a collective: all give and take
    start = ready
    for row in range(1 if overlap else 0, slot.shape[0]):
        if row <= OUT or span >> (row - OUT) & 1:
            if both or row > IN:
                for device in givers:
                    start = max(start, state[slot[row, device]])
            if both or row != OUT:
                for device in takers:
                    start = max(start, state[slot[row, device]])
    end = start + duration
    for row in range(1 if overlap else 0, slot.shape[0]):
        if row <= OUT or span >> (row - OUT) & 1:
            if both or row > IN:
                for device in givers:
                    state[slot[row, device]] = end
            elif row == COMPUTE:
                for device in givers:
                    state[device] = max(state[device], ready) + duration
            if both or row != OUT:
                for device in takers:
                    state[slot[row, device]] = end
    return end


@compiled
def _move(problem, board, state, edge, direction, beat):
    """Play an edge's transfers, those first that are ready first, and note when each device has all it takes."""
    buffer, arrival = board.edge[edge], board.arrival
    a, b = problem.source[edge], problem.target[edge]
    from_, to, side = (a, b, 0) if direction == FORWARD else (b, a, 1)
    before = problem.beat[direction, problem.micro[beat], from_]
    ends, later = board.ends[board.which[before], before], board.later[before]
    if not board.moves[buffer, edge, direction]:
        for part in range(board.parts[to]):
            device = board.device[to, part]
            arrival[device] = max(arrival[device], ends[device] + later)
        return
    comp, move = board.comp[buffer, edge], board.move[buffer, edge, direction]
    count = board.components[buffer, edge]
    ready = board.ready[:count]
    ready[:] = 0
    for part in range(board.parts[from_]):
        number = comp[side, part]
        ready[number] = max(ready[number], ends[board.device[from_, part]] + later)
    arrived = board.arrived[board.which[beat], 2 * problem.micro[beat] + direction, edge]
    member, begin = board.member[buffer, edge], board.begin[buffer, edge]
    _sort(ready, board.order)
    for number in board.order[0, :count]:
        if move[number] > 0:
            givers = member[side, begin[side, number] : begin[side, number + 1]]
            takers = member[1 - side, begin[1 - side, number] : begin[1 - side, number + 1]]
            span = board.span[buffer, edge, number]
            if span & ALIKE:
                takers = takers[:0]
            arrived[number] = _collective(
                state, problem.slot, problem.overlap, ready[number], move[number], span, givers, takers
            )
    for part in range(board.parts[to]):
        number, device = comp[1 - side, part], board.device[to, part]
        when = arrived[number] if move[number] > 0 else ends[device] + later
        arrival[device] = max(arrival[device], when)


@compiled
def _sort(keys, order):
    """The numbers of the keys in their order into order[0], of equals the lower number first."""
    count, in_order = keys.shape[0], True
    for number in range(count):
        order[0, number] = number
        in_order &= number == 0 or keys[number] >= keys[number - 1]
    run = count if in_order else 1
    while run < count:  # runs of this length are in order: merge each two
        copy(order[1, :count], order[0], run - run)
        for low in range(0, count, 2 * run):
            middle, high = min(low + run, count), min(low + 2 * run, count)
            left, right = low, middle
            for at in range(low, high):
                if left < middle and (right == high or keys[order[1, left]] <= keys[order[1, right]]):
                    order[0, at] = order[1, left]
                    left += 1
                else:
                    order[0, at] = order[1, right]
                    right += 1
        run *= 2


@compiled
def _together(problem, board, state, layer, kind, ends):
    """Have the parts of a layer add up."""
    parts = board.parts[layer]
    number, stride = groups_of(kind, board.sample[layer], board.reduction[layer], parts, board.copies[layer])
    built, fellows = board.built[layer], board.fellows[:number]
    for group in range(parts // number):
        gather_group(board.device[layer], group, stride, fellows)
        ready = np.int64(0)
        for device in fellows:
            ready = max(ready, ends[device])
        duration, span = board.sum[built, layer, kind, group], board.sum_span[built, layer, kind, group]
        end = _collective(state, problem.slot, problem.overlap, ready, duration, span, fellows, fellows[:0])
        for device in fellows:
            ends[device] = end


@inlined
def play_beat(problem, board, beat):
    """Play one beat, from the state that the one before it left."""
    layer, direction, last = problem.layer[beat], problem.direction[beat], problem.last[beat]
    which, later, arrival, sample = board.which, board.later, board.arrival, board.sample[layer]
    buffer = which[beat]
    states, all_ends, synced = board.state, board.ends, board.synced[buffer, layer]
    state, ends, computed = states[buffer, beat], all_ends[buffer, beat], board.computed[buffer, beat]
    if beat > 0:
        copy(state, states[which[beat - 1], beat - 1], later[beat - 1])
    else:
        state[:] = 0
    devices, edges = board.device[layer, : board.parts[layer]], problem.into[layer]
    for device in devices:
        arrival[device] = 0
    if direction != FORWARD:
        edges = problem.out[layer]
        if direction == WEIGHTS or edges[0] < 0:  # the last layer's gradient comes from its own results
            before = problem.beat[direction - 1, problem.micro[beat], layer]
            for device in devices:
                arrival[device] = all_ends[which[before], before, device] + later[before]
        if direction == WEIGHTS:
            edges = edges[:0]
    for edge in edges:
        if edge >= 0 and (direction == FORWARD or problem.back[edge]):
            _move(problem, board, state, edge, direction, beat)
    duration = board.duration[direction, layer]
    for device in devices:
        computed[device] = ends[device] = state[device] = max(state[device], arrival[device]) + duration
    for kind in range(board.sum.shape[2]):
        results = ends
        if kind == SHARED:
            adds = problem.shared[layer] > 0 and sample > 1 and direction != WEIGHTS
        elif kind == REDUCTION:
            adds = direction == FORWARD and board.reduction[layer] > 1
        else:
            results, adds = synced, last and sample > 1 and problem.weights[layer] > 0 and not problem.late
            if last:
                for device in devices:
                    synced[device] = ends[device]
        if adds:
            _together(problem, board, state, layer, kind, results)


@inlined
def finish(problem, board):
    """Reduce what was left for the end, update the weights; the end of the step."""
    begun, done, last, beats = board.begun, board.done, board.final, problem.synced
    all_synced, which, later, own, parts = board.synced, board.which, board.later, board.device, board.parts
    begun[:] = 0
    for layer in range(parts.shape[0]):
        beat = beats[layer]
        if beat >= 0:
            synced, plus = all_synced[which[beat], layer], later[beat]
            for device in own[layer, : parts[layer]]:
                begun[device] = max(begun[device], synced[device] + plus)
    if problem.late:
        last[:] = 0
        for device in range(begun.shape[0]):
            last[device] = begun[device]
        for number in range(parts.shape[0]):
            layer = parts.shape[0] - 1 - number
            if board.sample[layer] > 1 and problem.weights[layer]:
                _together(problem, board, last, layer, board.sum.shape[2] - 1, begun)
    for device in range(done.shape[0]):
        done[device] = begun[device]
    for layer in range(parts.shape[0]):
        work = problem.update[layer, problem.degree[board.parameter[layer] * board.reduction[layer]]]
        if work:
            for device in own[layer, : parts[layer]]:
                done[device] += work
    end = np.int64(0)
    for device in range(done.shape[0]):
        end = max(end, done[device])
    return end
