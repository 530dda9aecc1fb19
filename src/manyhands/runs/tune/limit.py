"""Limit: the largest number that fits, found from below.

8  16  32  64  128 ✗        grow by doubling, so that what does not fit is never far above what does
          96 ✓  112 ✗       then halve what is left in between, to within an eighth
"""

from collections.abc import Callable
from dataclasses import dataclass

NEAR = 8  # the answer is within one in so many


@dataclass(frozen=True)
class Limit:
    """The largest number that was seen to fit, and the smallest that was seen not to; None: all did."""

    fits: int
    fails: int | None


def find_limit(fits: Callable[[int], bool], first: int, most: int) -> Limit:
    """Grow from `first`, which fits, to at most `most`."""
    low = first
    while low < most:
        high = min(2 * low, most)
        if not fits(high):
            return _between(fits, low, high)
        low = high
    return Limit(low, None)


def _between(fits: Callable[[int], bool], low: int, high: int) -> Limit:
    while high - low > max(low // NEAR, 1):
        middle = (low + high) // 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return Limit(low, high)
