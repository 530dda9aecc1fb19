"""CSV export: every run as a row of CSV, for a spreadsheet or a data frame."""

import csv
import io
from collections.abc import Sequence
from typing import Any

from manyhands.report.data.group import flat, varied
from manyhands.report.data.summary import Row
from manyhands.runs.run_folder import Run

FORMULA = ("=", "+", "-", "@")  # how a text begins that a spreadsheet would run
RESULTS = (
    *("final_loss", "peak_memory_mb", "sent_bytes_per_step", "compression_ratio"),
    *("measured_step_ms", "predicted_step_ms", "steps", "world", "device"),
)


def csv_of(rows: Sequence[Row]) -> str:
    """The runs of all rows, with a column for every setting in which they differ."""
    runs = [(row, run) for row in rows for run in row.runs]
    settings = [flat(run) for _, run in runs]
    differing = varied(settings)
    lines = [
        {**_facts(row, run), **{name: mine.get(name, "") for name in differing}}
        for (row, run), mine in zip(runs, settings, strict=True)
    ]
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    columns = list(dict.fromkeys(name for line in lines for name in line))
    writer.writerow(map(_safe, columns))
    writer.writerows([_safe(line.get(name)) for name in columns] for line in lines)
    return buffer.getvalue()


def _facts(row: Row, run: Run) -> dict[str, Any]:
    result = run.result or {}
    config: dict[str, dict[str, Any]] = {name: table or {} for name, table in run.record.get("config", {}).items()}
    train = config.get("train", {})
    return {
        "run": run.name,
        "case": row.label,
        "plan": run.plan,
        "model": config.get("model", {}).get("name"),
        "data": config.get("data", {}).get("name"),
        "seed": train.get("seed"),
        "status": run.status,
        "epochs": train.get("epochs"),
        "batch_size": train.get("batch_size"),
        "samples_per_s": result.get("samples_per_s"),
        "train_seconds": (result.get("seconds") or {}).get("train"),
        "test_accuracy": result.get("test_accuracy"),
        "val_accuracy": result.get("val_accuracy"),
        **{name: result.get(name) for name in RESULTS},
        "created": run.record.get("created"),
        "machine": run.record.get("machine_words"),
        "error": run.record.get("error"),
    }


def _safe(value: Any) -> Any:
    """A cell on one line: a text that a spreadsheet would take for a formula gets an apostrophe before it."""
    if value is None or isinstance(value, int | float):
        return value
    text = " ".join(str(value).split())
    return f"'{text}" if text.startswith(FORMULA) else text
