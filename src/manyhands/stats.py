"""stats: TODO."""

import statistics
from collections.abc import Sequence


def mean_and_std(values: Sequence[float]) -> dict[str, float] | None:
    """Mean and sample deviation; None without values."""
    if not values:
        return None
    return {"mean": statistics.fmean(values), "std": statistics.stdev(values) if len(values) > 1 else 0.0}
