"""Runs: how fast each case is, what it reaches in its time, what its layers cost."""

from collections import Counter
from collections.abc import Sequence

from manyhands.report.charts.bars import Bar, bars
from manyhands.report.charts.palette import places
from manyhands.report.charts.spec import Axis, Chart, Panel, Series
from manyhands.report.data.layers import Layer, costly, ratio, total
from manyhands.report.data.summary import Row
from manyhands.runs.run_folder import Run
from manyhands.stats import number, spread, times

MOST_BARS = 20
MOST_LAYERS = 14
FORWARD, BACKWARD = 6, 2  # places in the palette


def speed(table: Sequence[Row]) -> Panel:
    """Samples a second by case: the first, by which the others are measured, and the fastest of these."""
    rank = sorted(range(1, len(table)), key=lambda at: -row.speed.mean if (row := table[at]).speed else 0.0)
    kept = {0, *rank[: MOST_BARS - 1]}
    every = [
        Bar(row.label, row.speed, _words(row, len(table)), colour)
        for at, (row, colour) in enumerate(_coloured(table))
        if at in kept
    ]
    chart = bars("speed", "Samples a second, steady state", "samples a second", every)
    note = f"The first and the fastest, {MOST_BARS} of {len(table)}; the table has all."
    return Panel("Samples a second", {"": chart}, note if len(table) > MOST_BARS else "")


def _words(row: Row, count: int) -> str:
    if row.speed is None:
        return "failed" if row.errors else "not measured"
    return spread(row.speed) + (f"  ({times(row.speedup)})" if row.speedup is not None and count > 1 else "")


def _coloured(table: Sequence[Row]) -> list[tuple[Row, int]]:
    return list(zip(table, places(len(table)), strict=True))


def tradeoff(table: Sequence[Row]) -> Panel | None:
    """Test accuracy against seconds of training, a point a run; None where there is no choice to show."""
    series = []
    for case, (row, colour) in enumerate(_coloured(table)):
        points = [point for run in row.finished if (point := _reached(run))]
        x, y, words = zip(*points, strict=True) if points else ((), (), ())
        if points:
            series.append(Series(row.label, colour, "points", x, y, words=words, symbol=case))
    if sum(len(each.x) for each in series) < 2:
        return None
    axes = Axis("seconds of training"), Axis("test accuracy", percent=True)
    return Panel("Time and accuracy", {"": Chart("time-and-accuracy", "Time and accuracy", *axes, tuple(series))})


def _reached(run: Run) -> tuple[float, float, str] | None:
    result = run.result or {}
    seconds, accuracy = (result.get("seconds") or {}).get("train"), result.get("test_accuracy")
    return None if seconds is None or accuracy is None else (seconds, accuracy, run.name)


def staleness(table: Sequence[Row]) -> Panel | None:
    """How many updates had overtaken gradients, a line a case; None where all kept step."""
    series = []
    for case, (row, colour) in enumerate(_coloured(table)):
        late: Counter[int] = Counter()
        for run in row.finished:
            told = (run.result or {}).get("staleness") or {}
            late.update({int(number): count for number, count in told.get("histogram", {}).items()})
        if any(late):
            x = tuple(range(max(late) + 1))
            y = tuple(late[number] / late.total() for number in x)
            series.append(Series(row.label, colour, "line", tuple(map(float, x)), y, symbol=case))
    if not series:
        return None
    axes = Axis("updates since the weights were read"), Axis("share of the gradients", percent=True)
    return Panel("Staleness", {"": Chart("staleness", "How stale gradients were", *axes, tuple(series))})


def layers(every: Sequence[Layer]) -> Panel:
    """Forward and backward time of each layer, the cheap ones together."""
    shown = costly(every, MOST_LAYERS)
    series = tuple(
        Series(
            name,
            colour,
            "bars",
            x=tuple(each[f"{name}_ms"] for each in shown),
            y=tuple(float(place) for place in range(len(shown))),
            words=tuple(f"{number(each[f'{name}_ms'], 2)} ms" for each in shown),
        )
        for name, colour in (("forward", FORWARD), ("backward", BACKWARD))
    )
    title = f"Backward takes {times(ratio(total(every, 'all')))} as long as forward"
    names = tuple(str(each["name"]) for each in shown)
    return Panel(title, {"": Chart("layers", title, Axis("milliseconds a step"), Axis(names=names), series)})
