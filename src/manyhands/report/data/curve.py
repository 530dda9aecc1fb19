"""Curve: how the loss of a run fell, and its validation accuracy rose, with the seconds and steps of training."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from manyhands.runs.run_folder import Run

SMOOTHED_OVER = 1 / 25  # of all steps
MOST_POINTS = 400  # more do not show, and make the page heavy


@dataclass(frozen=True)
class Mark:
    """The end of an epoch, on the curve."""

    seconds: float
    step: float
    loss: float
    accuracy: float


@dataclass(frozen=True)
class Curve:
    """Smoothed training loss against seconds spent in training steps, and against steps."""

    seconds: tuple[float, ...]
    steps: tuple[float, ...]
    loss: tuple[float, ...]
    marks: tuple[Mark, ...]
    epoch: float | None  # its steps, where that is known


def curve_of(run: Run, most: int = MOST_POINTS) -> Curve:
    """The curve of a run, empty when it left no metrics; losses that are no numbers are passed over."""
    records = list(run.metrics())
    count = sum("loss" in each for each in records)
    keep = 1 - 1 / max(1.0, count * SMOOTHED_OVER)
    points: list[tuple[float, float, float]] = []
    marks: list[Mark] = []
    seconds, step, mean, weight = 0.0, 0.0, 0.0, 0.0
    epoch = None
    for each in records:
        if "loss" in each:
            seconds += max(0.0, _number(each, "ms") or 0.0) / 1000
            step = _number(each, "step") or step + 1
            loss = _number(each, "loss")
            if loss is not None:
                # A moving mean that forgets; its weight starts at nothing, so the first values count in full.
                mean, weight = keep * mean + (1 - keep) * loss, keep * weight + (1 - keep)
                points.append((seconds, step, mean / weight))
        elif points and (accuracy := _number(each, "val_accuracy")) is not None:
            marks.append(Mark(*points[-1], accuracy))
            epoch = epoch or _steps_of_an_epoch(each)
    kept = points[:: max(1, math.ceil(len(points) / most))]
    if points and kept[-1] != points[-1]:
        kept.append(points[-1])
    along = [tuple(point[part] for point in kept) for part in range(3)]
    return Curve(along[0], along[1], along[2], tuple(marks), epoch or _planned(run))


def _number(record: Mapping[str, Any], name: str) -> float | None:
    """A finite number, or nothing: a line of metrics may hold anything."""
    value = record.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e300:
        return None
    return float(value)


def _steps_of_an_epoch(record: Mapping[str, Any]) -> float | None:
    step, epoch = _number(record, "step"), _number(record, "epoch")
    return step / epoch if step and epoch and step >= epoch > 0 else None


def _planned(run: Run) -> float | None:
    """The steps of an epoch by the order that was given, for a run that did not come to the end of one."""
    samples = _number(run.record.get("samples") or {}, "train")
    batch = _number(run.record.get("config", {}).get("train") or {}, "batch_size")
    return math.ceil(samples / batch) if samples and batch and batch > 0 else None
