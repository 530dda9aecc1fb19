"""Transfer: which devices exchange data between two layers, and how long that takes."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

import numpy as np

from manyhands.simulate.board import BACKWARD, FORWARD, compiled

NEARLY_ALL = 1 - 1e-9  # of a piece: shares are fractions


@compiled
def _gcd(a, b):
    while b:
        a, b = b, a % b
    return a


@compiled
def _output(board, layer):
    """How many ways samples and features of a layer's output are cut, and how many devices have each piece."""
    return board.sample[layer], board.parameter[layer], board.reduction[layer] * board.copies[layer]


@compiled
def _input(problem, board, layer):
    """The same of what a layer takes: all features, but for a reduction or where each makes its own output."""
    sample, parameter, reduction = board.sample[layer], board.parameter[layer], board.reduction[layer]
    if problem.same[layer]:
        return sample, parameter, reduction * board.copies[layer]
    return sample, reduction, parameter * board.copies[layer]


@compiled
def _piece_out(board, layer, part):
    """Which piece of the output a part makes. Parts count samples slowest, then parameters, reductions, copies."""
    rest = part // (board.reduction[layer] * board.copies[layer])
    return rest // board.parameter[layer], rest % board.parameter[layer]


@compiled
def _piece_in(problem, board, layer, part):
    if problem.same[layer]:
        return _piece_out(board, layer, part)
    rest = part // board.copies[layer]
    reduction = board.reduction[layer]
    return rest // (reduction * board.parameter[layer]), rest % reduction


@compiled
def _common(index, count, other, others):
    """What share of the whole two pieces have in common: one of `count` equal ones, the other of `others`."""
    low = max(index * others, other * count)
    high = min((index + 1) * others, (other + 1) * count)
    return max(high - low, 0) / (count * others)


@compiled
def build_edge(problem, board, edge, buffer, tally):
    """Which parts of source and target exchange data, and how long that takes in either direction.

    Devices fall into components within which every part of the target takes from every part of the source; a
    component moves as one collective, from the moment at which all that gives is ready.
    """
    a, b = problem.source[edge], problem.target[edge]
    samples_a, features_a, copies_a = _output(board, a)
    samples_b, features_b, copies_b = _input(problem, board, b)
    groups_s, groups_f = _gcd(samples_a, samples_b), _gcd(features_a, features_b)
    count = groups_s * groups_f
    board.components[buffer, edge] = count
    comp = board.comp[buffer, edge]
    whole = problem.output[a]
    have, need = whole / (samples_a * features_a), whole / (samples_b * features_b)
    given, missing, taken = np.zeros(count), np.zeros(count), np.zeros(count)  # the most of any device of a component
    for part in range(board.parts[a]):
        row, column = _piece_out(board, a, part)
        number = row * groups_s // samples_a * groups_f + column * groups_f // features_a
        comp[0, part] = number
        other, kept = board.place[b, board.device[a, part]], 0.0
        if other >= 0:
            row_b, column_b = _piece_in(problem, board, b, other)
            kept = whole * _common(row, samples_a, row_b, samples_b) * _common(column, features_a, column_b, features_b)
        given[number] = max(given[number], have * copies_b / copies_a - kept)
        if kept < have * NEARLY_ALL:
            missing[number] = max(missing[number], have - kept)
    for part in range(board.parts[b]):
        row, column = _piece_in(problem, board, b, part)
        number = row * groups_s // samples_b * groups_f + column * groups_f // features_b
        comp[1, part] = number
        other, kept = board.place[a, board.device[b, part]], 0.0
        if other >= 0:
            row_a, column_a = _piece_out(board, a, other)
            kept = whole * _common(row_a, samples_a, row, samples_b) * _common(column_a, features_a, column, features_b)
        if kept < need * NEARLY_ALL:
            taken[number] = max(taken[number], need - kept)
    # Parts of the target by parameter have each a summand of the gradient; where several devices made the
    # same piece of the source, each of them needs the sum.
    sums = not problem.same[b] and board.parameter[b] > 1 and copies_a > 1
    _gather(board, a, buffer, edge, 0, count)
    _gather(board, b, buffer, edge, 1, count)
    board.moves[buffer, edge, :] = 0
    for number in range(count):
        board.span[buffer, edge, number] = 0
        sources, targets = members(board, buffer, edge, 0, number), members(board, buffer, edge, 1, number)
        hops = _hops(max(sources.shape[0], targets.shape[0]))
        forward = backward = 0
        if taken[number] > 0.0:
            volume = taken[number] if problem.ring else max(given[number], taken[number])
            forward = _nanoseconds(problem, 0, volume, hops)
        if max(taken[number], missing[number]) > 0.0:
            backward = max(forward, _nanoseconds(problem, 0, missing[number], hops))
        for level in range(1, problem.size.shape[0]):
            crossing = 0.0
            if forward > 0:
                crossing = _crossing(problem, level, sources, targets, need, copies_a, copies_b, tally)
            elif backward > 0:
                crossing = _crossing(problem, level, targets, sources, have, copies_b, copies_a, tally)
            if crossing > 0.0:
                board.span[buffer, edge, number] |= 1 << level
                crossed = _nanoseconds(problem, level, crossing, hops)
                forward, backward = max(forward, crossed) if forward else 0, max(backward, crossed)
        if sums:
            added, span = all_reduce(problem, have, sources, tally)
            backward += added
            board.span[buffer, edge, number] |= span
        board.move[buffer, edge, FORWARD, number], board.move[buffer, edge, BACKWARD, number] = forward, backward
        board.moves[buffer, edge, FORWARD] += forward > 0
        board.moves[buffer, edge, BACKWARD] += backward > 0


@compiled
def _gather(board, layer, buffer, edge, side, count):
    """Note the devices of a layer in the order of their components, and where each component begins."""
    comp, member = board.comp[buffer, edge, side], board.member[buffer, edge, side]
    begin = board.begin[buffer, edge, side]
    begin[: count + 1] = 0
    for part in range(board.parts[layer]):
        begin[comp[part] + 1] += 1
    for number in range(count):
        begin[number + 1] += begin[number]
    for part in range(board.parts[layer]):  # moves each beginning to its end, which is the next one's
        member[begin[comp[part]]] = board.device[layer, part]
        begin[comp[part]] += 1
    for number in range(count, 0, -1):
        begin[number] = begin[number - 1]
    begin[0] = 0


@compiled
def members(board, buffer, edge, side, number):
    """The devices of one component on one side of an edge: 0 gives in the forward pass, 1 takes."""
    begin = board.begin[buffer, edge, side]
    return board.member[buffer, edge, side, begin[number] : begin[number + 1]]


@compiled
def _hops(members):
    """How often a message is told on until all have it."""
    hops = 1
    while 1 << hops < members:
        hops += 1
    return hops


@compiled
def _nanoseconds(problem, level, volume, hops):
    """At least one: what happens takes time, so that a later time always shows that something happened."""
    return max(np.int64(np.rint(volume / problem.rate[level])) + hops * problem.latency[level], 1)


@compiled
def _crossing(problem, level, sources, targets, need, copies_a, copies_b, tally):
    """The bytes of a component's move that go over the busiest link of a level."""
    size = problem.size[level]
    for device in sources:
        tally[0, device // size] += 1
    for device in targets:
        tally[1, device // size] += 1
    most = 0.0
    for side in (sources, targets):
        for device in side:
            group = device // size
            inside = min(tally[0, group] * copies_a / sources.shape[0], 1.0)  # share of the data that is at home
            here, elsewhere = tally[1, group], targets.shape[0] - tally[1, group]
            enters, leaves = here * need * (1.0 - inside), elsewhere * need * inside / copies_a
            if problem.ring:  # what has entered is told on inside
                enters /= max(min(here, copies_b), 1)
                leaves /= max(min(elsewhere, copies_b), 1)
            most = max(most, max(enters, leaves) if problem.duplex[level] else enters + leaves)
    for device in sources:
        tally[0, device // size] = 0
    for device in targets:
        tally[1, device // size] = 0
    return most


@compiled
def all_reduce(problem, size, members, tally):
    """Nanoseconds in which so many devices add up `size` bytes each, and bits of the levels that it crosses.

    Every device gives away all but its own part and gets the other sums back, by a ring or each from each.
    """
    number = members.shape[0]
    hops = 2 * _hops(number)
    most = _nanoseconds(problem, 0, 2.0 * size * (number - 1) / number, hops)
    span = 0
    for level in range(1, problem.size.shape[0]):
        for device in members:
            tally[0, device // problem.size[level]] += 1
        busiest = 0.0
        for device in members:
            here = tally[0, device // problem.size[level]]
            if here < number:
                parts = 1.0 if problem.ring else here * (number - here) / (number - 1)
                ways = 1.0 if problem.duplex[level] else 2.0
                busiest = max(busiest, 2.0 * ways * parts * size * (number - 1) / number)
        for device in members:
            tally[0, device // problem.size[level]] = 0
        if busiest > 0.0:
            span |= 1 << level
            most = max(most, _nanoseconds(problem, level, busiest, hops))
    return most, span
