"""Aggregate: the runs of each case as means with deviations, the first case being what speed-ups are over."""

import statistics
from collections.abc import Sequence
from typing import Any

from manyhands.runs.metrics_reader import epoch_seconds, seconds_to
from manyhands.runs.run_folder import Run
from manyhands.stats import mean_and_std

SENT = ("sent_bytes_per_step", "compression_ratio")  # None where nothing is sent, or nobody counts


def rows(labels: Sequence[str], runs: Sequence[Sequence[Run]]) -> list[dict[str, Any]]:
    """One row a case, in the order given."""
    table = [_row(label, mine) for label, mine in zip(labels, runs, strict=True)]
    base = table[0]["samples_per_s"]
    for row in table:
        row["speedup"] = row["samples_per_s"]["mean"] / base["mean"] if row["samples_per_s"] and base else None
    return table


def _row(label: str, runs: Sequence[Run]) -> dict[str, Any]:
    done = [run for run in runs if run.status == "finished" and run.result]
    results = [run.result for run in done if run.result]
    speeds = [each["samples_per_s"] for each in results if each["samples_per_s"] is not None]
    return {
        "plan": label,
        "samples_per_s": mean_and_std(speeds),
        "train_seconds": mean_and_std([each["seconds"]["train"] for each in results]),
        "test_accuracy": mean_and_std([each["test_accuracy"] for each in results]),
        "epoch_seconds": mean_and_std([each for run in done if (each := epoch_seconds(run)) is not None]),
        "target_seconds": _reached([seconds_to(run) for run in done]),
        "staleness": _staleness([each["staleness"] for each in results if each.get("staleness")]),
        "bound": results[0]["plan"] if results else None,
        **{key: results[0].get(key) if results else None for key in SENT},
        "n": len(results),
        "failed": next((str(run.record["error"]) for run in runs if run.status != "finished"), None),
        "runs": [str(run.folder) for run in runs],
    }


def _reached(times: Sequence[float | None]) -> dict[str, float] | None:
    """None where a run did not get there: a mean over the others would flatter."""
    known = [each for each in times if each is not None]
    return mean_and_std(known) if len(known) == len(times) else None


def _staleness(told: Sequence[dict[str, Any]]) -> dict[str, float] | None:
    """How many updates gradients were late by: the mean over the runs, and the most in any."""
    if not told:
        return None
    return {"mean": statistics.fmean(each["mean"] for each in told), "max": max(each["max"] for each in told)}
