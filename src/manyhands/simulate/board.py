"""Board: the arrays on which a simulation is played.

A step of training is a list of **beats**: the forward pass of one layer for one micro-batch, or its backward pass,
each with the transfers that bring its inputs and, after the last backward, the reduction of its gradients. Beats are
played in the order of the program, as a rank carries out its program and a process group its queue. What the beats
played so far leave to the later ones is

    state    when each device, each of its two ports (in, out) and each shared link will be free
    live     when each result that a later beat takes was ready

Splits, devices and links are numbers in arrays, and the loops over them are compiled by numba: plain Python would take
some hundred times as long, and a search asks for a hundred thousand simulations.
"""

# mypy: disable-error-code="no-untyped-def"

import hashlib
from pathlib import Path
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from manyhands.files import home

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

# numba looks only at a function's own file to see whether what it compiled still holds, not at those of the functions
# that it calls: so a folder for each state of the sources, below that of numba's own setting where there is one.
_sources = sorted(Path(__file__).parents[1].glob("s*/*.py"))  # simulate, search
_state = hashlib.sha256(b"".join(path.read_bytes() for path in _sources)).hexdigest()[:16]
numba.config.CACHE_DIR = str(Path(numba.config.CACHE_DIR or home() / "compiled") / _state)  # type: ignore[attr-defined]

compiled = numba.njit(cache=True, nogil=True)

FORWARD, BACKWARD = 0, 1


class Problem(NamedTuple):
    """What stays the same whatever the plan: numbers of layer l, edge e, beat b, level v, degree k."""

    devices: int
    degree: Ints  # number of a degree, by the degree
    forward: Ints  # ns [l, k of sample, k of parameter x reduction]
    backward: Ints
    update: Ints  # ns [l, k of parameter x reduction]
    sync: Ints  # ns [l, k of sample, k of parameter x reduction] where measured, else -1
    output: Ints  # bytes of all samples of a micro-batch [l]
    weights: Ints  # bytes [l]
    shared: Ints  # bytes that the sample parts tell each other in either pass, as batch norm does [l]
    same: Bools  # takes of its input the features of which it makes its output [l]
    source: Ints  # [e]
    target: Ints  # [e]
    back: Bools  # whether a gradient goes back [e]
    into: Ints  # edges into a layer [l, ...], -1 at the end
    out: Ints  # edges out of a layer
    # The program.
    direction: Ints  # forward or backward [b]
    layer: Ints  # [b]
    micro: Ints  # micro-batch [b]
    last: Bools  # whether the layer's gradients are whole after it [b]
    beat: Ints  # the beat of a direction, micro-batch and layer, or -1
    synced: Ints  # the last backward beat of a layer, or -1 [l]
    live: Ints  # beats whose results are taken after a beat [b, ...], -1 at the end
    fresh: Ints  # layers of later beats that take no result [b, ...], -1 at the end
    # The links. Level 0 is a device's own port.
    size: Ints  # devices of a group [v]
    first: Ints  # where a level's groups begin in the state [v]
    rate: Floats  # bytes a ns [v]
    latency: Ints  # ns [v]
    duplex: Bools  # whether both directions go at once [v]
    ring: bool  # collectives relay; else every device sends to every other
    overlap: bool  # transfers and computation go at once
    late: bool  # gradients are reduced after the backward pass
    # Memory, bytes of one part.
    memory: Ints  # [l, k of sample, k of parameter x reduction]
    capacity: int


class Board(NamedTuple):
    """A plan and its timeline. Times lie in one of two buffers, so that a change can be taken back."""

    sample: Ints  # degrees of a layer's split [l]
    parameter: Ints
    reduction: Ints
    copies: Ints
    parts: Ints  # their product
    device: Ints  # of a part [l, part]
    place: Ints  # the part that a device has, or -1 [l, d]
    components: Ints  # of an edge's components [buffer, e]
    comp: Ints  # the component of each part of an edge's source, and of its target [buffer, e, 2, part]
    member: Ints  # devices of an edge's source, and of its target, by component [buffer, e, 2, ...]
    begin: Ints  # where a component's devices begin among them [buffer, e, 2, component]
    moves: Ints  # components that move, forward and backward [buffer, e, 2]
    move: Ints  # ns of a component, forward and backward [buffer, e, 2, component]
    span: Ints  # bits of the levels that a component crosses [buffer, e, component]
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


@compiled
def place(board, layer, degrees, devices):
    """Give a layer a split (sample, parameter, reduction, copies), and its parts their devices."""
    board.sample[layer], board.parameter[layer], board.reduction[layer], board.copies[layer] = degrees
    board.parts[layer] = devices.shape[0]
    board.place[layer, :] = -1
    for part in range(devices.shape[0]):
        board.device[layer, part] = devices[part]
        board.place[layer, devices[part]] = part
