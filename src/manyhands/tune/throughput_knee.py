"""Throughput knee: the batch size after which a larger one is hardly faster."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

NEARLY = 0.95  # of the highest throughput


def knee(speeds: Mapping[int, float]) -> int:
    """The smallest batch size whose throughput is nearly the highest; `speeds` are samples a second by size."""
    enough = NEARLY * max(speeds.values())
    return min(size for size, speed in speeds.items() if speed >= enough)


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
