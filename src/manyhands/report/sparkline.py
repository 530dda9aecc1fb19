"""Sparkline: a curve as one line of text."""

import math
from collections.abc import Sequence

BLOCKS = "▁▂▃▄▅▆▇█"
GAP = " "  # where no value is a number


def spark(values: Sequence[float], width: int) -> str:
    """Values from left to right as blocks from the lowest to the highest, at most `width` of them.

    More values than that are averaged, neighbours together; those that are not finite are left out.

    >>> spark([0, 1, 2, 3, 4, 5, 6, 7], 8)
    '▁▂▃▄▅▆▇█'
    >>> spark([1, 3, 5, float("nan")], 2)
    '▁█'
    """
    count = min(width, len(values))
    means = [_mean(values[len(values) * at // count : len(values) * (at + 1) // count]) for at in range(count)]
    known = [mean for mean in means if mean is not None]
    if not known:
        return GAP * count
    low, high = min(known), max(known)
    return "".join(GAP if mean is None else _block(mean, low, high) for mean in means)


def _mean(values: Sequence[float]) -> float | None:
    finite = [value for value in values if math.isfinite(value)]
    mean = sum(finite) / len(finite) if finite else math.nan
    return mean if math.isfinite(mean) else None


def _block(value: float, low: float, high: float) -> str:
    """A level curve lies in the middle."""
    if not 0 < high - low < math.inf:
        return BLOCKS[len(BLOCKS) // 2 - 1]
    return BLOCKS[min(int((value - low) / (high - low) * len(BLOCKS)), len(BLOCKS) - 1)]
