"""tensor_layout: TODO."""

from collections.abc import Sequence
from functools import lru_cache
from math import isqrt
from typing import NamedTuple

from manyhands.errors import PlanError
from manyhands.plan.layout import edges

LINE = 64  # elements; at least one cache line of any dtype


@lru_cache(maxsize=1024)
def parts(count: int, world: int) -> tuple[slice, ...]:
    """Which elements each rank reduces: even shares, on borders that no two cores' caches fight over."""
    share = -(-count // world)
    share = -(-share // LINE) * LINE
    return tuple(slice(min(rank * share, count), min((rank + 1) * share, count)) for rank in range(world))


class Moved(NamedTuple):
    """Numbers that all ranks together send in a step, forward and backward, where X and Y lie in q x q blocks.

    meshed: by sample=q, parameter=q, which gathers X, adds dX up and all-reduces dW; a rank has 1/q of the weight.
    spread: by parameter=q², which gathers X to all, and adds dX up; a rank has 1/q² of it, as by Cannon.
    """

    cannon: int
    meshed: int
    spread: int


def moved(rows: int, inputs: int, outputs: int, side: int) -> Moved:
    """For a batch of so many rows.

    Cannon sends X, W twice and dX on q − 1 times, dW q times; skewed, and brought home, are all rows of the grid but
    one.
    """
    batch, weight = rows * inputs, outputs * inputs
    if side == 1:
        return Moved(0, 0, 0)
    bounds = edges(rows, side)
    skewed, home = rows - bounds[1], rows - (bounds[2] - bounds[1])
    cannon = (side - 1) * (3 * batch + 3 * weight) + weight + (skewed + home) * inputs
    return Moved(cannon, 2 * (side - 1) * (batch + weight), 2 * (side * side - 1) * batch)


def side_of(devices: Sequence[int]) -> int:
    """Of the grid that these devices make, row by row."""
    side = isqrt(len(devices))
    if side * side != len(devices):
        raise PlanError(f"Cannon's algorithm needs a square number of devices, not {len(devices)}: use 1, 4, 9, 16 …")
    return side
