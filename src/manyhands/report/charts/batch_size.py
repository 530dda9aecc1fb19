"""Batch size: steps and time to the target, with the regimes and the critical batch."""

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from manyhands.report.charts.palette import REFERENCE
from manyhands.report.charts.spec import Axis, Chart, Series

MEASURED, LAW, PREDICTED = 1, 2, 3  # places in the palette
ROOM = 1.6  # above the highest point, for the names of the regimes
POINTS = 40  # of the fitted curve


def charts(result: Mapping[str, Any]) -> list[Chart]:
    """What `tune batch-size` found, as two charts with the same marks."""
    rows = [row for row in result["table"] if row["steps_to_target"] is not None]
    sizes = tuple(float(row["batch_size"]) for row in rows)
    steps = tuple(float(row["steps_to_target"]) for row in rows)
    seconds = tuple(float(row["seconds_to_target"]) for row in rows)
    axis = Axis("batch size", log=True, ticks=sizes)
    return [
        Chart("steps-to-target", "Steps to the target", axis, Axis("steps", log=True), _steps(result, sizes, steps)),
        Chart("time-to-target", "Time to the target", axis, Axis("seconds", log=True), _time(result, sizes, seconds)),
    ]


def _steps(result: Mapping[str, Any], sizes: tuple[float, ...], steps: tuple[float, ...]) -> tuple[Series, ...]:
    if not sizes:
        return ()
    perfect = tuple(steps[0] * sizes[0] / size for size in sizes)
    series = [Series("perfect scaling", REFERENCE, "dashes", sizes, perfect)]
    law = result["law"]
    if law is not None:
        between = _between(sizes[0], sizes[-1])
        curve = tuple(law["least_steps"] + law["least_samples"] / size for size in between)
        series.append(Series("fitted", LAW, "line", between, curve))
    series.append(Series("measured", MEASURED, "points", sizes, steps))
    return (*series, *_marks(result, sizes, (*steps, *perfect)))


def _time(result: Mapping[str, Any], sizes: tuple[float, ...], seconds: tuple[float, ...]) -> tuple[Series, ...]:
    if not sizes:
        return ()
    measured = (
        Series("measured", MEASURED, "line", sizes, seconds, listed=False),
        Series("measured", MEASURED, "points", sizes, seconds),
    )
    return (*measured, *_marks(result, sizes, seconds))


def _marks(result: Mapping[str, Any], sizes: tuple[float, ...], values: tuple[float, ...]) -> tuple[Series, ...]:
    """Upright lines at the critical batch and between the regimes, with their names, as far as they are in sight."""
    low, high = min(values), ROOM * max(values)
    marks = []
    noise, law = result["critical_batch"], result["law"] or {"critical_batch": None}
    if noise is not None and sizes[0] <= noise <= sizes[-1]:
        marks.append(Series("critical batch by the noise", PREDICTED, "dashes", (noise, noise), (low, high)))
    if law["critical_batch"] is None:
        return tuple(marks)
    perfect, stagnates = law["perfect_until"], law["stagnates_from"]
    ends = [sizes[0], *(edge for edge in (perfect, stagnates) if sizes[0] < edge < sizes[-1]), sizes[-1]]
    for edge in ends[1:-1]:
        marks.append(Series("", REFERENCE, "line", (edge, edge), (low, high), listed=False, faint=True, symbol=1))
    for first, last in pairwise(ends):
        middle = math.sqrt(first * last)
        name = "perfect scaling" if middle < perfect else "stagnation" if middle > stagnates else "diminishing"
        marks.append(Series("", REFERENCE, "line", (middle,), (high,), words=(name,), written=True, listed=False))
    return tuple(marks)


def _between(first: float, last: float) -> tuple[float, ...]:
    return tuple(first * (last / first) ** (number / (POINTS - 1)) for number in range(POINTS))
