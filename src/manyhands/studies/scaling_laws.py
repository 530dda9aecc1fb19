"""Laws of scaling, with a share f of the work that cannot be split over n ranks.

Amdahl: the work stays the same, and n ranks are 1 / (f + (1 - f) / n) times as fast.
Gustafson: the work grows with the ranks, and they are n - f (n - 1) times as fast.
"""

from collections.abc import Sequence
from typing import Any

from manyhands.studies import derived_metrics, scaling_laws
from manyhands.studies.recipe import Row

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


def fits(rows: Sequence[Row]) -> list[Row]:
    """Amdahl's law, or Gustafson's where the batch grows, on every line of a scaling study from one rank to more."""
    lines: dict[str, list[tuple[int, float]]] = {}
    batches: dict[str, set[Any]] = {}
    for row in rows:
        if (speedup := derived_metrics.scaled(row, rows)) is not None:
            lines.setdefault(derived_metrics.line(row), []).append((derived_metrics.ranks(row), speedup))
            batches.setdefault(derived_metrics.line(row), set()).add(row["cell"].get("train.batch_size"))
    table = []
    for label, points in lines.items():
        if len(points) > 1 and min(points)[0] == 1:
            law = scaling_laws.AMDAHL if len(batches[label]) == 1 else scaling_laws.GUSTAFSON
            share = scaling_laws.fit(law, points)
            most = 1 / share if share and law == scaling_laws.AMDAHL else None
            table.append({"label": label, "law": law, "serial_fraction": share, "most": most, "points": points})
    return table
