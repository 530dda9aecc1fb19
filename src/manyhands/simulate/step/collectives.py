"""Collectives: how long the parts of a layer take to add up."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

import numpy as np

from manyhands.simulate.step.arrays import GRADIENTS, NEVER, REDUCTION, SHARED
from manyhands.simulate.step.jit import compiled


@compiled
def hops(members):
    """How often a message is told on until all have it."""
    relays = 1
    while 1 << relays < members:
        relays += 1
    return relays


@compiled
def nanoseconds(volume, rate, relays, latency):
    """At least one: what happens takes time, so that a later time always shows that something happened."""
    return max(np.int64(np.rint(volume / rate)) + relays * latency, 1)


@compiled
def all_reduce(problem, size, members, tally):
    """Nanoseconds in which so many devices add up `size` bytes each, and bits of the levels that it crosses.

    Every device gives away all but its own part and gets the other sums back, by a ring or each from each.
    """
    number = members.shape[0]
    relays = 2 * hops(number)
    most = nanoseconds(2.0 * size * (number - 1) / number, problem.rate[0], relays, problem.latency[0])
    span = 0
    for level in range(1, problem.rate.shape[0]):
        groups = problem.group[level]
        for device in members:
            tally[0, groups[device]] += 1
        busiest, last = 0.0, -1
        for device in members:
            group = groups[device]
            here = tally[0, group]
            if group != last and here < number:
                parts = 1.0 if problem.ring else here * (number - here) / (number - 1)
                ways = 1.0 if problem.duplex[level] else 2.0
                busiest = max(busiest, 2.0 * ways * parts * size * (number - 1) / number)
            last = group
        for device in members:
            tally[0, groups[device]] = 0
        if busiest > 0.0:
            span |= 1 << level
            most = max(most, nanoseconds(busiest, problem.rate[level], relays, problem.latency[level]))
    return most, span


@compiled
def build_layer(problem, board, layer, buffer):
    """How long the parts of a layer take to add up what they share, the results of a reduction, and gradients."""
    sample, parameter, reduction = board.sample[layer], board.parameter[layer], board.reduction[layer]
    busy = board.busy[buffer, layer]
    busy[:] = 0
    for kind in range(board.sum.shape[2]):
        size = 0.0
        if kind == SHARED and sample > 1:
            size = problem.shared[layer] / parameter
        elif kind == REDUCTION and reduction > 1:
            size = problem.summed[layer] / (sample * parameter)
        elif kind == GRADIENTS and sample > 1:
            size = problem.weights[layer] / (parameter * reduction)
        board.sum_least[buffer, layer, kind] = 0
        if size == 0.0:
            continue
        least = np.int64(NEVER)
        number, stride = groups_of(kind, sample, reduction, board.parts[layer], board.copies[layer])
        fellows = board.fellows[:number]
        measured = problem.sync[layer, problem.degree[sample], problem.degree[parameter * reduction]]
        for group in range(board.parts[layer] // number):
            gather_group(board.device[layer], group, stride, fellows)
            duration, span = all_reduce(problem, size, fellows, board.tally)
            if kind == GRADIENTS and measured >= 0:
                duration = max(measured, 1)
            board.sum[buffer, layer, kind, group], board.sum_span[buffer, layer, kind, group] = duration, span
            least = min(least, duration)
            if kind == GRADIENTS:
                _keep_busy(busy, fellows, problem.group, span | 1, duration)
        board.sum_least[buffer, layer, kind] = least


@compiled
def _keep_busy(busy, members, groups, span, duration):
    """Add what a collective takes of the port of device 0, and of the links of its groups."""
    for level in range(busy.shape[0]):
        if span >> level & 1:
            for device in members:
                if groups[level, device] == 0:
                    busy[level] += duration
                    break


@compiled
def groups_of(kind, sample, reduction, parts, copies):
    """How many parts of a layer add up together, and how far apart they are counted."""
    return (reduction, copies) if kind == REDUCTION else (sample, parts // sample)


@compiled
def gather_group(devices, group, stride, fellows):
    """Note the devices of one such group of parts."""
    part = group // stride * fellows.shape[0] * stride + group % stride
    for each in range(fellows.shape[0]):
        fellows[each] = devices[part + each * stride]
