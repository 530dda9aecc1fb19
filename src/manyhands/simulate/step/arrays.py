"""Arrays: the arrays on which a simulation is played.

A step of training is a list of **beats**: the forward pass of one layer for one micro-batch, or its backward pass,
each with the transfers that bring its inputs and, after the last backward, the reduction of its gradients. Where a
schedule has weight gradients apart, they are beats of their own, and the backward pass gives the inputs' alone. Beats
are played in the order of the program, as a rank carries out its program and a process group its queue. What the beats
played so far leave to the later ones is

    state    when each device, each of its two ports (in, out) and each shared link will be free
    live     when each result that a later beat takes was ready

Splits, devices and links are numbers in arrays, and the loops over them are compiled by numba: plain Python would take
some hundred times as long, and a search asks for a hundred thousand simulations.
"""

# mypy: disable-error-code="no-untyped-def"
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from manyhands.simulate.step.jit import compiled

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

FORWARD, BACKWARD, WEIGHTS = 0, 1, 2
SHARED, REDUCTION, GRADIENTS = 0, 1, 2  # what the parts of a layer add up
WAY, LAYER, PLAN, SHIFT = 0, 1, 2, 3  # from where a split is taken that is tried
COMPUTE, IN, OUT = 0, 1, 2  # what a device has, before links
ALIKE = 1  # the bit that says that those who give are those who take
NEVER = 2**62


class Problem(NamedTuple):
    """What stays the same whatever the plan: numbers of layer l, edge e, beat b, level v, degree k."""

    devices: int
    degree: Ints  # number of a degree, by the degree
    forward: Ints  # ns [l, k of sample, k of parameter, k of reduction]
    backward: Ints
    apart: Ints  # of the backward pass, what the beats of the weights take; 0 where there are none
    update: Ints  # ns [l, k of parameter x reduction]
    sync: Ints  # ns [l, k of sample, k of parameter x reduction] where measured, else -1
    output: Ints  # bytes of all samples of a micro-batch [l]
    summed: Ints  # bytes of what parts by reduction add up [l]
    weights: Ints  # bytes [l]
    shared: Ints  # bytes that the sample parts tell each other in either pass, as batch norm does [l]
    same: Bools  # takes of its input the features of which it makes its output [l]
    source: Ints  # [e]
    target: Ints  # [e]
    back: Bools  # whether a gradient goes back [e]
    into: Ints  # edges into a layer [l, ...], -1 at the end
    out: Ints  # edges out of a layer
    # The program.
    direction: Ints  # forward, backward or weights [b]
    layer: Ints  # [b]
    micro: Ints  # micro-batch [b]
    last: Bools  # whether the layer's gradients are whole after it [b]
    beat: Ints  # the beat of a direction, micro-batch and layer, or -1
    synced: Ints  # the beat after which a layer's gradients are whole, or -1 [l]
    live: Ints  # beats whose results are taken after a beat [b, ...], -1 at the end
    fresh: Ints  # layers of later beats that take no result [b, ...], -1 at the end
    # The links. Level 0 is a device's own port.
    size: Ints  # devices of a group [v]
    slot: Ints  # where in the state a device's time, its ports and its links are [..., d]
    group: Ints  # of a device [v, d]
    rate: Floats  # bytes a ns [v]
    latency: Ints  # ns [v]
    duplex: Bools  # whether both directions go at once [v]
    ring: bool  # collectives relay; else every device sends to every other
    overlap: bool  # transfers and computation go at once
    late: bool  # gradients are reduced after the backward pass
    # Memory, bytes of one part.
    memory: Ints  # bytes [l, k of sample, k of parameter, k of reduction]
    capacity: int


class SimulationState(NamedTuple):
    """A plan and its timeline. Times lie in one of two buffers, so that a change can be taken back."""

    sample: Ints  # degrees of a layer's split [l]
    parameter: Ints
    reduction: Ints
    copies: Ints
    parts: Ints  # their product
    device: Ints  # of a part [l, part]
    place: Ints  # the part that a device has, or -1 [l, d]
    piece: Ints  # of a part, counted by sample, by parameter, by reduction [l, 3, part]
    duration: Ints  # ns that each part computes [direction, l]
    needs: Ints  # bytes of memory of each part [l]
    used: Ints  # bytes of memory [d]
    sum: Ints  # ns in which a group of parts adds up [buffer, l, what, group]
    sum_span: Ints  # bits of the levels that it crosses
    sum_least: Ints  # ns of the fastest group [buffer, l, what]
    busy: Ints  # ns for which gradients keep the port of device 0 busy, and its group's links [buffer, l, v]
    built: Ints  # the buffer of a layer's sums [l]
    components: Ints  # of an edge's components [buffer, e]
    comp: Ints  # the component of each part of an edge's source, and of its target [buffer, e, 2, part]
    member: Ints  # devices of an edge's source, and of its target, by component [buffer, e, 2, ...]
    begin: Ints  # where a component's devices begin among them [buffer, e, 2, component]
    moves: Ints  # components that move, forward and backward [buffer, e, 2]
    move: Ints  # ns of a component, forward and backward [buffer, e, 2, component]
    move_least: Ints  # ns of the fastest component, 0 where one does not move [buffer, e, 2]
    span: Ints  # bits of the levels that a component crosses, and ALIKE [buffer, e, component]
    edge: Ints  # the buffer of an edge [e]
    computed: Ints  # end of a beat's computation [buffer, b, d]
    ends: Ints  # when its results are there: what parts add up for them comes between [buffer, b, d]
    arrived: Ints  # end of an edge's component [buffer, 2 x micro-batch + direction, e, component]
    synced: Ints  # end of a layer's reduction of gradients [buffer, l, d]
    state: Ints  # after a beat [buffer, b, ...]: free, in, out of each device, then the links
    which: Ints  # the buffer of a beat [b]
    later: Ints  # what is to be added to a beat's times [b]
    begun: Ints  # of a device's update [d]
    done: Ints  # its end
    # Before the last change.
    was_which: Ints
    was_later: Ints
    was_edge: Ints
    was_built: Ints
    # Room for what is worked out on the way.
    stale_edge: Bools  # still to be built [e]
    stale_layer: Bools  # [l]
    touched: Bools  # played anew [b]
    after: Ints  # ns from a beat to the end of the step, at least [b]
    least_pass: Ints  # ns of a layer's pass, at least [direction, l]
    rest: Ints  # ns for which the backward pass still keeps them busy [v]
    least_sync: Ints  # ns in which a layer's gradients are reduced, at least [l]
    least_move: Ints  # ns of an edge, at least [direction, e]
    wanted: Ints  # splits that are tried [l, 5]
    everything: Bools  # all true [l]
    numbers: Ints  # 0, 1, ... [d]
    arrival: Ints  # [d]
    ready: Ints  # [d]
    fellows: Ints  # [d]
    order: Ints  # [2, d]
    tally: Ints  # [2, d]
    table: Ints  # [4, d]
    amount: Floats  # [3, d]
    final: Ints  # a state


class Tries(NamedTuple):
    """Changes to try one after the other; see attempt."""

    change: Ints  # layers from, to before; from where their split is taken, its number, its first device [t, 5]
    slack: Floats  # the share of the step by which it may get longer [t]
    ways: Ints  # degrees to which layers can be cut [..., 4]
    most: Ints  # the highest degrees of a layer by sample, parameter, reduction [l, 3]
    plan: Ints  # degrees and first device of each layer, as on the board [l, 5]
    plans: Ints  # the best so far, and others from which splits are taken [..., l, 5]
    best: int  # ns of the best so far
    lacks: int  # bytes that it lacks on some device
    full: bool  # play everything each time
    patient: bool  # play to the end even what cannot be short enough


@compiled
def copy(target, source, plus):
    """Numbers from one array into another, with something added; numba's own assignments allocate."""
    for number in range(target.shape[0]):
        target[number] = source[number] + plus


@compiled
def cut(problem, board, layer, degrees):
    """Give a layer a split (sample, parameter, reduction, copies); its parts are still to be placed."""
    board.sample[layer], board.parameter[layer] = degrees[0], degrees[1]
    board.reduction[layer], board.copies[layer] = degrees[2], degrees[3]
    k, p, r = problem.degree[degrees[0]], problem.degree[degrees[1]], problem.degree[degrees[2]]
    board.duration[FORWARD, layer] = problem.forward[layer, k, p, r]
    board.duration[BACKWARD, layer] = problem.backward[layer, k, p, r] - problem.apart[layer, k, p, r]
    board.duration[WEIGHTS, layer] = problem.apart[layer, k, p, r]


@compiled
def place(problem, board, layer, devices):
    """Give the parts of a layer their devices."""
    own, of_device, piece, used = board.device[layer], board.place[layer], board.piece[layer], board.used
    for device in own[: board.parts[layer]]:
        used[device] -= board.needs[layer]
        of_device[device] = -1
    samples, parameters = board.sample[layer], board.parameter[layer]
    reductions, copies = board.reduction[layer], board.copies[layer]
    part = 0
    for sample in range(samples):
        for parameter in range(parameters):
            for reduction in range(reductions):
                for _ in range(copies):
                    piece[0, part], piece[1, part], piece[2, part] = sample, parameter, reduction
                    part += 1
    k, p, r = problem.degree[samples], problem.degree[parameters], problem.degree[reductions]
    needed = problem.memory[layer, k, p, r]
    board.parts[layer], board.needs[layer] = part, needed
    for number in range(part):
        device = devices[number]
        own[number] = device
        of_device[device] = number
        used[device] += needed
