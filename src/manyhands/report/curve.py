"""Curve: how the loss of a run fell with the seconds of training."""

import math
from dataclasses import dataclass

from manyhands.runs.store import Run

SMOOTHED_OVER = 1 / 25  # of all steps
MOST_POINTS = 400  # more do not show, and make the page heavy


@dataclass(frozen=True)
class Mark:
    """The end of an epoch, on the curve."""

    seconds: float
    loss: float
    accuracy: float


@dataclass(frozen=True)
class Curve:
    """Smoothed training loss against seconds spent in training steps."""

    seconds: tuple[float, ...]
    loss: tuple[float, ...]
    marks: tuple[Mark, ...]


def curve_of(run: Run) -> Curve:
    """The curve of a run, empty when it left no metrics; losses that are no numbers are passed over."""
    records = list(run.metrics())
    steps = sum("loss" in each for each in records)
    keep = 1 - 1 / max(1.0, steps * SMOOTHED_OVER)
    points: list[tuple[float, float]] = []
    marks: list[Mark] = []
    seconds, mean, weight = 0.0, 0.0, 0.0
    for each in records:
        if "loss" in each:
            seconds += each["ms"] / 1000
            if math.isfinite(each["loss"]):
                # A moving mean that forgets; its weight starts at nothing, so the first values count in full.
                mean, weight = keep * mean + (1 - keep) * each["loss"], keep * weight + (1 - keep)
                points.append((seconds, mean / weight))
        elif points and each.get("val_accuracy") is not None:
            marks.append(Mark(*points[-1], each["val_accuracy"]))
    kept = points[:: max(1, math.ceil(len(points) / MOST_POINTS))]
    if points and kept[-1] != points[-1]:
        kept.append(points[-1])
    return Curve(tuple(at for at, _ in kept), tuple(loss for _, loss in kept), tuple(marks))
