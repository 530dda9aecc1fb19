"""Export metrics: a run's metrics and its timeline as files that other programs read."""

import csv
import io
import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any

from manyhands.errors import UNREADABLE, InputError, StorageError
from manyhands.files import write_text, written_aside
from manyhands.runs import run_folder
from manyhands.runs.run_folder import order_of
from manyhands.runs.tensorboard import PREFIX, Events
from manyhands.timeline import Timeline

COLUMNS = ("step", "epoch", "loss", "lr", "ms", "val_loss", "val_accuracy")

Made = dict[str, Any]  # where it was written, and how much


def write_csv(run: run_folder.Run, path: Path) -> Made:
    """Write a row a step, the validation after it in the same row."""
    rows = list(_rows(run))
    text = io.StringIO()
    table = csv.DictWriter(text, COLUMNS, extrasaction="ignore", lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    write_text(path, text.getvalue())
    return {"path": str(path), "rows": len(rows)}


def _rows(run: run_folder.Run) -> Iterator[dict[str, Any]]:
    """What is known of each step; the epoch, which only validations tell, is counted."""
    samples, sizes = (run.record.get("samples") or {}).get("train"), order_of(run).batch_sizes
    row: dict[str, Any] = {}
    for record in _records(run):
        if row and row["step"] != record["step"]:
            yield row
            row = {}
        row |= record
        if samples:
            row["epoch"] = _epoch(row["step"], samples, sizes)
    yield row


def _epoch(step: int, samples: int, sizes: Sequence[int]) -> int:
    """The epoch of a step, both from 1 on, by the batch size of each epoch."""
    for epoch in count(1):
        step -= -(-samples // sizes[min(epoch, len(sizes)) - 1])
        if step <= 0:
            break
    return epoch


def write_trace(run: run_folder.Run, path: Path) -> Made:
    """Write the timeline as Chrome's tracing page and Perfetto read it."""
    source = run.folder / "timeline.json"
    if not os.path.lexists(source):
        raise InputError(f"run {run.folder} is {run.status} and has no timeline: only a finished one has")
    try:
        timeline = Timeline.load(source)
    except UNREADABLE as error:
        raise InputError(f"{source} cannot be read as a trace ({error}): train the run again") from None
    timeline.save(path)
    return {"path": str(path), "events": len(timeline.events)}


def write_events(run: run_folder.Run, folder: Path) -> Made:
    """Write an event file for TensorBoard; a second one of the same run replaces the first."""
    records, at = _records(run), _created(run)
    path = folder / f"{PREFIX}{at:010.0f}.{run.name}"
    if others := [each.name for each in folder.glob(f"{PREFIX}*") if each.name != path.name]:
        raise StorageError(f"{folder} has {others[0]}, and TensorBoard draws a folder as one run: choose another")
    with written_aside(path) as aside, closing(Events(aside)) as events:
        events.order(run.record)
        for each in records:
            # The metrics do not say when it was; the time that the steps took comes close.
            at += each["ms"] / 1000 if isinstance(each.get("ms"), int | float) else 0
            events.record(each, at)
        tested = {key: (run.result or {}).get(key) for key in ("test_loss", "test_accuracy")}
        events.record({"step": records[-1]["step"], **tested}, at)
    return {"path": str(path), "events": len(records)}


def _records(run: run_folder.Run) -> list[dict[str, Any]]:
    records = [each for each in run.metrics() if isinstance(each.get("step"), int)]
    if not records:
        raise InputError(f"run {run.folder} is {run.status} and has no metrics: not one of its steps was done")
    return records


def _created(run: run_folder.Run) -> float:
    try:
        return datetime.fromisoformat(run.record["created"]).timestamp()
    except (KeyError, TypeError, ValueError):
        return 0.0
