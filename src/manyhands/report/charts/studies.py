"""Studies: bars, lines over what was varied, or the scaling over ranks beside the ideal and Amdahl's law."""

import re
from collections.abc import Sequence
from dataclasses import replace

from manyhands.report.charts.bars import Bar, bars
from manyhands.report.charts.palette import BRIGHT, FIRST, REFERENCE, places
from manyhands.report.charts.spec import Axis, Chart, Panel, Series
from manyhands.report.data.study import called, is_share, said
from manyhands.stats import Mean
from manyhands.studies.record import MEASURES, Fit, Study, StudyRow

MOST_BARS = 40
FIT_POINTS = 40  # of the drawn law
MOST_TICKS = 16
GRID = "line"  # the axis that names the grids of a study


def panel(study: Study) -> Panel | None:
    """What the study asked to be drawn; a tab a measure, its own first."""
    if study.plot == "none":
        return None
    if study.plot == "scaling" and study.fits:
        return Panel("Scaling", {"speed-up": speedup(study), "efficiency": efficiency(study)}, _told(study.fits))
    known = [name for name in (study.measure, *MEASURES) if any(row.value(name) for row in study.rows)]
    if study.plot == "line" and (along := _along(study)):
        return Panel(study.title, _lines(study, along, known)) if known else None
    charts = {called(name): by_case(study, name) for name in known}
    cut = f"The first {MOST_BARS} of {len(study.rows)}; the table has all."
    return Panel(study.title, charts, cut if len(study.rows) > MOST_BARS else "") if charts else None


def by_case(study: Study, measure: str) -> Chart:
    """A bar a row."""
    every = [
        Bar(row.label, row.value(measure), _words(row, measure), colour)
        for row, colour in zip(study.rows, places(len(study.rows)), strict=True)
    ]
    return bars(_name(study, measure), _title(study, measure), called(measure), every[:MOST_BARS], is_share(measure))


def _words(row: StudyRow, measure: str) -> str:
    value = row.value(measure)
    if value is None:
        return "failed" if row.failed else "not measured"
    return said(measure, value)


def _title(study: Study, measure: str, grid: str = "") -> str:
    return f"{study.title}{f', {grid}' if grid else ''}: {called(measure)}"


def _name(study: Study, *parts: str) -> str:
    """The name of a chart's files."""
    return "-".join(re.findall(r"\w+", " ".join(("study", study.name, *parts)).lower()))[:80]


def _along(study: Study) -> str | None:
    """The axis over which lines go: the first that has numbers alone, and several of them if there is such a one."""
    numbers = {axis: {_number(row.cell.get(axis)) for row in study.rows} for axis in study.axes}
    known = [axis for axis, values in numbers.items() if None not in values]
    several = [axis for axis in known if len(numbers[axis]) > 1]
    return next(iter(several), study.axes[0] if study.axes[0] in known else None) if study.axes else None


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text is not None else None
    except ValueError:
        return None


def _lines(study: Study, along: str, measures: Sequence[str]) -> dict[str, Chart]:
    """A chart a measure; where grids have names, a chart a grid, of the study's own measure."""
    if GRID not in study.axes:
        return {called(name): line(study, name, along, study.rows) for name in measures}
    grids: dict[str, list[StudyRow]] = {}
    for row in study.rows:
        grids.setdefault(row.cell.get(GRID, study.title), []).append(row)
    return {grid: line(study, measures[0], along, rows, grid) for grid, rows in grids.items()}


def line(study: Study, measure: str, along: str, rows: Sequence[StudyRow], grid: str = "") -> Chart:
    """A line over the numbers of one axis for each value of the others."""
    others = [axis for axis in study.axes if axis != along and len({row.cell.get(axis) for row in rows}) > 1]
    lines: dict[str, list[tuple[float, Mean, str]]] = {}
    for row in rows:
        label = ", ".join(row.cell[name] for name in others if name in row.cell) or study.title
        if value := row.value(measure):
            lines.setdefault(label, []).append((float(row.cell[along]), value, said(measure, value)))
    series = []
    for place, (label, points) in enumerate(lines.items()):
        x, values, words = zip(*sorted(points, key=lambda point: point[0]), strict=True)
        y, colour = tuple(value.mean for value in values), FIRST + place % BRIGHT
        error = tuple(value.std for value in values) if any(value.n > 1 for value in values) else ()
        series += [
            Series(label, colour, "line", x, y, family=label),
            Series(label, colour, "points", x, y, error, words=words, family=label, listed=False, symbol=place),
        ]
    numbers = sorted({at for each in series for at in each.x})
    axes = (
        Axis(along, log=all(at > 0 for at in numbers), ticks=tuple(numbers[:MOST_TICKS])),
        Axis(called(measure), percent=is_share(measure)),
    )
    return Chart(_name(study, measure, grid), _title(study, measure, grid), *axes, tuple(series))


def speedup(study: Study) -> Chart:
    """Speed-ups over ranks: measured, by the law that is fitted to them, and what would be ideal."""
    fewest, most = _range(study)
    series = [Series("ideal", REFERENCE, "dashes", (fewest, most), (1.0, most / fewest), faint=True)]
    for number, fit in enumerate(study.fits):
        along = tuple(fewest * (most / fewest) ** (step / FIT_POINTS) for step in range(FIT_POINTS + 1))
        law = tuple(map(fit.speedup, along))
        series += [
            _measured(fit, number, [value for _, value in fit.points]),
            Series(fit.label, FIRST + number % BRIGHT, "dashes", along, law, family=fit.label, listed=False),
        ]
    return _over_ranks(study, "speed-up", series, log=True)


def efficiency(study: Study) -> Chart:
    """The share of the ideal speed-up that is reached."""
    series = [Series("ideal", REFERENCE, "dashes", _range(study), (1.0, 1.0), faint=True)]
    for number, fit in enumerate(study.fits):
        shares = [value * fit.points[0][0] / ranks for ranks, value in fit.points]
        dots = _measured(fit, number, shares)
        series += [replace(dots, look="line", listed=False, words=(), symbol=0), dots]
    return _over_ranks(study, "efficiency", series, log=False)


def _range(study: Study) -> tuple[float, float]:
    """The fewest and the most ranks."""
    ranks = [at for fit in study.fits for at, _ in fit.points]
    return min(ranks), max(ranks)


def _measured(fit: Fit, number: int, values: Sequence[float]) -> Series:
    x = tuple(ranks for ranks, _ in fit.points)
    words = tuple(f"{value:.2f}" for value in values)
    colour = FIRST + number % BRIGHT
    return Series(fit.label, colour, "points", x, tuple(values), words=words, family=fit.label, symbol=number)


def _over_ranks(study: Study, what: str, series: Sequence[Series], log: bool) -> Chart:
    ranks = sorted({at for fit in study.fits for at, _ in fit.points})
    axes = Axis("ranks", log=True, ticks=tuple(ranks)), Axis(what, log=log, percent=not log)
    return Chart(_name(study, what), f"{study.title}: {what} over ranks", *axes, tuple(series))


def _told(fits: Sequence[Fit]) -> str:
    """What the law says of each line."""
    return f"Dashes, fitted: {'; '.join(map(str, fits))}."
