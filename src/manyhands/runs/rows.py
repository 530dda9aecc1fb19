"""Rows: the runs of each case as means with deviations, the first case being what speed-ups are over."""

import statistics
from collections.abc import Sequence
from typing import Any

from manyhands.runs.store import Run

SENT = ("sent_bytes_per_step", "compression_ratio")  # None where nothing is sent, or nobody counts


def rows(labels: Sequence[str], runs: Sequence[Sequence[Run]]) -> list[dict[str, Any]]:
    """One row a case, in the order given."""
    table = [_row(label, mine) for label, mine in zip(labels, runs, strict=True)]
    base = table[0]["samples_per_s"]
    for row in table:
        row["speedup"] = row["samples_per_s"]["mean"] / base["mean"] if row["samples_per_s"] and base else None
    return table


def _row(label: str, runs: Sequence[Run]) -> dict[str, Any]:
    results = [run.result for run in runs if run.status == "finished" and run.result]
    speeds = [each["samples_per_s"] for each in results if each["samples_per_s"] is not None]
    return {
        "plan": label,
        "samples_per_s": mean_and_std(speeds),
        "train_seconds": mean_and_std([each["seconds"]["train"] for each in results]),
        "test_accuracy": mean_and_std([each["test_accuracy"] for each in results]),
        "bound": results[0]["plan"] if results else None,
        **{key: results[0].get(key) if results else None for key in SENT},
        "n": len(results),
        "failed": next((str(run.record["error"]) for run in runs if run.status != "finished"), None),
        "runs": [str(run.folder) for run in runs],
    }


def mean_and_std(values: Sequence[float]) -> dict[str, float] | None:
    """Mean and sample deviation; None without values."""
    if not values:
        return None
    return {"mean": statistics.fmean(values), "std": statistics.stdev(values) if len(values) > 1 else 0.0}
