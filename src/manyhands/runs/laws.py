"""Laws of scaling, with a share f of the work that cannot be split over n ranks.

Amdahl: the work stays the same, and n ranks are 1 / (f + (1 - f) / n) times as fast.
Gustafson: the work grows with the ranks, and they are n - f (n - 1) times as fast.
"""

from collections.abc import Sequence

AMDAHL, GUSTAFSON = "Amdahl", "Gustafson"


def fit(law: str, points: Sequence[tuple[int, float]]) -> float:
    """The share f, from 0 to 1, that fits (ranks, speed-up) best, by least squares of 1 / speed-up, or of the speed-up.

    1/S - 1/n = f (1 - 1/n) is a line through the origin, and so is n - S = f (n - 1).

    >>> fit(AMDAHL, [(1, 1.0), (2, 2 / 1.1), (4, 4 / 1.3)])
    0.1
    >>> fit(GUSTAFSON, [(1, 1.0), (2, 1.9), (4, 3.7)])
    0.1
    """
    if law == AMDAHL:
        pairs = [(1 - 1 / ranks, 1 / speedup - 1 / ranks) for ranks, speedup in points]
    else:
        pairs = [(ranks - 1, ranks - speedup) for ranks, speedup in points]
    below = sum(x * x for x, _ in pairs)
    share = sum(x * y for x, y in pairs) / below if below else 0.0
    return round(min(max(share, 0.0), 1.0), 6)
