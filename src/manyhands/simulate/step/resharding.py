"""Resharding: which devices exchange data between two layers, and how long that takes."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from manyhands.simulate.step.arrays import ALIKE, BACKWARD, FORWARD, NEVER
from manyhands.simulate.step.collectives import all_reduce, hops, nanoseconds
from manyhands.simulate.step.jit import compiled

NEARLY_ALL = 1 - 1e-9  # of a piece: shares are fractions


@compiled
def _gcd(a, b):
    while b:
        a, b = b, a % b
    return a


@compiled
def _common(index, count, other, others):
    """What two pieces have in common, in parts of count x others: one of `count` equal ones, the other of `others`."""
    return max(min((index + 1) * others, (other + 1) * count) - max(index * others, other * count), 0)


@compiled
def build_edge(problem, board, edge, buffer):
    """Which parts of source and target exchange data, and how long that takes in either direction.

    Devices fall into components within which every part of the target takes from every part of the source; a
    component moves as one collective, from the moment at which all that gives is ready.

    Rows are the pieces into which samples are cut, columns those of the features. A layer takes all features, but for
    a reduction or where each makes its own output. Copies are the devices that have each piece.
    """
    a, b = problem.source[edge], problem.target[edge]
    by = 1 if problem.same[b] else 2  # counts a part's columns of the input: by parameter, or by reduction
    rows_a, columns_a = board.sample[a], board.parameter[a]
    rows_b, columns_b = board.sample[b], board.parameter[b] if by == 1 else board.reduction[b]
    copies_a, copies_b = board.parts[a] // (rows_a * columns_a), board.parts[b] // (rows_b * columns_b)
    groups_r, groups_c = _gcd(rows_a, rows_b), _gcd(columns_a, columns_b)
    count = groups_r * groups_c
    board.components[buffer, edge] = count
    comp = board.comp[buffer, edge]
    whole = problem.output[a]
    unit = whole / (rows_a * columns_a * rows_b * columns_b)
    have, need = whole / (rows_a * columns_a), whole / (rows_b * columns_b)
    given, missing, taken = board.amount[0], board.amount[1], board.amount[2]  # the most of a component's devices
    given[:count] = missing[:count] = taken[:count] = 0.0
    row_a, column_a = board.piece[a, 0], board.piece[a, 1]
    row_b, column_b = board.piece[b, 0], board.piece[b, by]
    table = board.table  # the group of a row or column: divisions take long
    _spread(table[0], groups_r, rows_a // groups_r, groups_c)
    _spread(table[1], groups_c, columns_a // groups_c, groups_c // groups_c)
    _spread(table[2], groups_r, rows_b // groups_r, groups_c)
    _spread(table[3], groups_c, columns_b // groups_c, groups_c // groups_c)
    moves = False
    for part in range(board.parts[a]):
        row, column = row_a[part], column_a[part]
        number = table[0, row] + table[1, column]
        comp[0, part] = number
        other, kept = board.place[b, board.device[a, part]], 0.0
        if other >= 0:
            rows = _common(row, rows_a, row_b[other], rows_b)
            kept = unit * (rows * _common(column, columns_a, column_b[other], columns_b))
        given[number] = max(given[number], have * copies_b / copies_a - kept)
        if kept < have * NEARLY_ALL:
            moves = True
            missing[number] = max(missing[number], have - kept)
    for part in range(board.parts[b]):
        row, column = row_b[part], column_b[part]
        number = table[2, row] + table[3, column]
        comp[1, part] = number
        other, kept = board.place[a, board.device[b, part]], 0.0
        if other >= 0:
            rows = _common(row_a[other], rows_a, row, rows_b)
            kept = unit * (rows * _common(column_a[other], columns_a, column, columns_b))
        if kept < need * NEARLY_ALL:
            moves = True
            taken[number] = max(taken[number], need - kept)
    # Parts of the target by parameter have each a summand of the gradient; where several devices made the
    # same piece of the source, each of them needs the sum.
    sums = by == 2 and board.parameter[b] > 1 and copies_a > 1
    board.moves[buffer, edge, FORWARD] = board.moves[buffer, edge, BACKWARD] = 0
    fastest = board.move_least[buffer, edge]
    fastest[FORWARD] = fastest[BACKWARD] = 0
    board.move[buffer, edge, FORWARD, :count] = board.move[buffer, edge, BACKWARD, :count] = 0
    if not moves and not sums:
        return
    member, begin = board.member[buffer, edge], board.begin[buffer, edge]
    _gather(board.device[a, : board.parts[a]], comp[0], member[0], begin[0, : count + 1])
    _gather(board.device[b, : board.parts[b]], comp[1], member[1], begin[1, : count + 1])
    move, count_of = board.move[buffer, edge], board.moves[buffer, edge]
    fastest[FORWARD] = fastest[BACKWARD] = NEVER
    for number in range(count):
        sources = member[0, begin[0, number] : begin[0, number + 1]]
        targets = member[1, begin[1, number] : begin[1, number + 1]]
        relays = hops(max(sources.shape[0], targets.shape[0]))
        forward = backward = span = 0
        if taken[number] > 0.0:
            volume = taken[number] if problem.ring else max(given[number], taken[number])
            forward = nanoseconds(volume, problem.rate[0], relays, problem.latency[0])
        if max(taken[number], missing[number]) > 0.0:
            backward = max(forward, nanoseconds(missing[number], problem.rate[0], relays, problem.latency[0]))
        from_, to, each, copies, others = sources, targets, need, copies_a, copies_b
        if forward == 0:
            from_, to, each, copies, others = targets, sources, have, copies_b, copies_a
        for level in range(1, problem.rate.shape[0] if backward > 0 else 0):
            duplex, groups = problem.duplex[level], problem.group[level]
            crossing = _crossing(from_, to, groups, each, copies, others, problem.ring, duplex, board.tally)
            if crossing > 0.0:
                span |= 1 << level
                crossing_ns = nanoseconds(crossing, problem.rate[level], relays, problem.latency[level])
                forward, backward = (
                    max(forward, crossing_ns) if forward else 0,
                    max(backward, crossing_ns),
                )
        if sums:
            added, spans = all_reduce(problem, have, sources, board.tally)
            backward += added
            span |= spans
        board.span[buffer, edge, number] = span | (ALIKE if _alike(sources, targets) else 0)
        move[FORWARD, number], move[BACKWARD, number] = forward, backward
        fastest[FORWARD], fastest[BACKWARD] = min(fastest[FORWARD], forward), min(fastest[BACKWARD], backward)
        count_of[FORWARD] += forward > 0
        count_of[BACKWARD] += backward > 0


@compiled
def _spread(table, groups, size, step):
    """Note the group of each of groups x size pieces, times step."""
    at = 0
    for group in range(groups):
        for _ in range(size):
            table[at] = group * step
            at += 1


@compiled
def _gather(devices, comp, member, begin):
    """Note a layer's devices in the order of their components, and where each component begins."""
    begin[:] = 0
    for part in range(devices.shape[0]):
        begin[comp[part] + 1] += 1
    for number in range(1, begin.shape[0]):
        begin[number] += begin[number - 1]
    for part in range(devices.shape[0]):  # moves each beginning to its end, which is the next one's
        member[begin[comp[part]]] = devices[part]
        begin[comp[part]] += 1
    for number in range(begin.shape[0] - 1, 0, -1):
        begin[number] = begin[number - 1]
    begin[0] = 0


@compiled
def _alike(one, other):
    """Whether the same devices give and take."""
    alike = one.shape[0] == other.shape[0] and one.shape[0] > 1
    for number in range(one.shape[0] if alike else 0):
        alike &= one[number] == other[number]
    return alike


@compiled
def _crossing(sources, targets, groups, need, copies_a, copies_b, ring, duplex, tally):
    """The bytes of a component's move that go over the busiest link of a level."""
    home, away = groups[sources[0]], 0
    for device in sources:
        tally[0, groups[device]] += 1
        away += groups[device] != home
    for device in targets:
        tally[1, groups[device]] += 1
        away += groups[device] != home
    most = 0.0
    for side in range(tally.shape[0] if away else 0):
        last = -1
        for device in sources if side == 0 else targets:
            group = groups[device]
            if group == last:
                continue
            last = group
            inside = min(tally[0, group] * copies_a / sources.shape[0], 1.0)  # share of the data that is at home
            here, elsewhere = tally[1, group], targets.shape[0] - tally[1, group]
            enters, leaves = here * need * (1.0 - inside), elsewhere * need * inside / copies_a
            if ring:  # what has entered is told on inside
                enters /= max(min(here, copies_b), 1)
                leaves /= max(min(elsewhere, copies_b), 1)
            most = max(most, max(enters, leaves) if duplex else enters + leaves)
    for device in sources:
        tally[0, groups[device]] = 0
    for device in targets:
        tally[1, groups[device]] = 0
    return most
