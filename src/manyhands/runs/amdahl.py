"""Amdahl's law: with a share f of the work that cannot be split, n ranks are 1 / (f + (1 - f) / n) times as fast."""

from collections.abc import Sequence


def fit(points: Sequence[tuple[int, float]]) -> float:
    """The share f, from 0 to 1, that fits (ranks, speed-up) best, by least squares of 1 / speed-up.

    1/S - 1/n = f (1 - 1/n) is a line through the origin.

    >>> fit([(1, 1.0), (2, 2 / 1.1), (4, 4 / 1.3)])
    0.1
    """
    pairs = [(1 - 1 / ranks, 1 / speedup - 1 / ranks) for ranks, speedup in points]
    below = sum(x * x for x, _ in pairs)
    share = sum(x * y for x, y in pairs) / below if below else 0.0
    return round(min(max(share, 0.0), 1.0), 6)


def speedup(share: float, ranks: float) -> float:
    """What the law says."""
    return 1 / (share + (1 - share) / ranks)
