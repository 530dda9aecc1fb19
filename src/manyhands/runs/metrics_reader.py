"""Metrics reader: what the validations of a run tell of time: seconds an epoch, and seconds to an accuracy."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from manyhands.files import write_text
from manyhands.runs.run_folder import Run

TARGET = 0.98  # of the validation accuracy: where time to an accuracy is told


class Point(NamedTuple):
    """One validation: epochs done, seconds of training until then, and the accuracy."""

    epoch: float
    seconds: float
    accuracy: float


def points(run: Run) -> Iterator[Point]:
    """Every validation, in order; what is not told in numbers is passed over."""
    for record in run.metrics():
        values = [record.get(key) for key in ("epoch", "train_seconds", "val_accuracy")]
        numbers = [float(each) for each in values if isinstance(each, int | float)]
        if len(numbers) == len(values):
            yield Point(*numbers)


def epoch_seconds(run: Run) -> float | None:
    """Of training, over all whole epochs; None where there is none."""
    last = max(points(run), key=lambda each: (each.epoch, -each.seconds), default=None)  # a part of one may follow
    return last.seconds / last.epoch if last and last.epoch else None


def seconds_to(run: Run, accuracy: float = TARGET) -> float | None:
    """Of training, up to the first validation with this accuracy; None where none has it."""
    return next((each.seconds for each in points(run) if each.accuracy >= accuracy), None)


def cut_metrics(run: Run, step: int) -> None:
    """Forget what came after `step`: a resumed run does it again."""

    def done(record: dict[str, Any]) -> bool:
        at = record.get("step")  # none in a line that somebody else has written
        return isinstance(at, int) and at <= step

    lines = [json.dumps(each) for each in run.metrics() if done(each)]
    write_text(run.folder / "metrics.jsonl", "".join(f"{line}\n" for line in lines))


def share_done(folder: Path) -> float:
    """How far a run is, from the last line of its metrics."""
    try:
        total = json.loads((folder / "run.json").read_text())["total_steps"]
        with (folder / "metrics.jsonl").open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - 400))
            return float(json.loads(file.read().splitlines()[-1])["step"] / total)
    except (OSError, ValueError, KeyError, IndexError):
        return 0.0
