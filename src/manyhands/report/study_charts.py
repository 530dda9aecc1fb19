"""Charts of a study: bars, lines over what was varied, or the scaling over ranks beside the ideal and Amdahl's law."""

import re
from collections.abc import Sequence
from dataclasses import replace

from manyhands.report.bars import Bar, bars
from manyhands.report.chart import Axis, Chart, Panel, Series
from manyhands.report.colours import BRIGHT, FIRST, REFERENCE, places
from manyhands.report.study import MEASURES, Fit, Study, StudyRow, called, is_share, said

MOST_BARS = 40
FIT_POINTS = 40  # of the drawn law
MOST_TICKS = 16

Lines = dict[str, list[tuple[float, StudyRow]]]


def panel(study: Study) -> Panel | None:
    """What the study asked to be drawn; a tab a measure, its own first."""
    if study.plot == "none":
        return None
    if study.plot == "scaling" and study.fits:
        return Panel("Scaling", {"speed-up": speedup(study), "efficiency": efficiency(study)}, _told(study.fits))
    lines = _lines(study) if study.plot == "line" else {}
    known = [name for name in (study.measure, *MEASURES) if any(row.value(name) for row in study.rows)]
    charts = {called(name): line(study, name, lines) if lines else by_case(study, name) for name in known}
    cut = f"The first {MOST_BARS} of {len(study.rows)}; the table has all."
    return Panel(study.title, charts, cut if len(study.rows) > MOST_BARS and not lines else "") if charts else None


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


def _title(study: Study, measure: str) -> str:
    return f"{study.title}: {called(measure)}"


def _name(study: Study, measure: str) -> str:
    """The name of a chart's files."""
    return "-".join(re.findall(r"\w+", f"study {study.name} {measure}".lower()))[:80]


def line(study: Study, measure: str, lines: Lines) -> Chart:
    """A line over the numbers of the first axis for each value of the others."""
    series = []
    for place, (label, points) in enumerate(lines.items()):
        known = [(at, value) for at, row in points if (value := row.value(measure))]
        x, y = tuple(at for at, _ in known), tuple(value.mean for _, value in known)
        colour, words = FIRST + place % BRIGHT, tuple(said(measure, value) for _, value in known)
        error = tuple(value.std for _, value in known) if any(value.n > 1 for _, value in known) else ()
        series += [
            Series(label, colour, "line", x, y, family=label),
            Series(label, colour, "points", x, y, error, words=words, family=label, listed=False, symbol=place),
        ]
    numbers = sorted({at for each in series for at in each.x})
    along = Axis(study.axes[0], log=all(at > 0 for at in numbers), ticks=tuple(numbers[:MOST_TICKS]))
    axes = along, Axis(called(measure), percent=is_share(measure))
    return Chart(_name(study, measure), _title(study, measure), *axes, tuple(series))


def _lines(study: Study) -> Lines:
    """The rows along each line, sorted by the number on the first axis; none when that is no number."""
    first, others = study.axes[:1], study.axes[1:]
    lines: Lines = {}
    for row in study.rows:
        try:
            at = float(row.cell[first[0]])
        except (IndexError, KeyError, ValueError):
            return {}
        label = ", ".join(row.cell[name] for name in others if name in row.cell) or study.title
        lines.setdefault(label, []).append((at, row))
    return {label: sorted(points, key=lambda point: point[0]) for label, points in lines.items()}


def speedup(study: Study) -> Chart:
    """Speed-ups over ranks: measured, by the fit of Amdahl's law, and what would be ideal."""
    fewest, most = _range(study)
    series = [Series("ideal", REFERENCE, "dashes", (fewest, most), (1.0, most / fewest), faint=True)]
    for number, fit in enumerate(study.fits):
        along = tuple(fewest * (most / fewest) ** (step / FIT_POINTS) for step in range(FIT_POINTS + 1))
        law = tuple(1 / (fit.serial_fraction + (1 - fit.serial_fraction) / ranks) for ranks in along)
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
    parts = (
        f"{fit.label}: {100 * fit.serial_fraction:.1f} % stays serial"
        + (f", at most {1 / fit.serial_fraction:.1f}x" if fit.serial_fraction else "")
        for fit in fits
    )
    return f"Dashes: Amdahl's law, fitted. {'; '.join(parts)}."
