"""Header: what a reader of the page sees first: what was found, by how much, and how sure that is."""

from collections.abc import Sequence

from manyhands.report.data import summary
from manyhands.report.data.study import called, said
from manyhands.report.data.summary import Row
from manyhands.report.gather import Report
from manyhands.report.page.html import Html, fill, join, paragraph
from manyhands.report.text.headline import count, headlines, notes, what
from manyhands.stats import Mean, spread, times
from manyhands.studies.record import LESS_IS_BETTER, Study

LONG = 120  # letters of a headline, from which it is set smaller

Tile = tuple[str, str, str]  # a fact, its deviation, and what it is


def head(report: Report) -> Html:
    """The headline, what was compared, the numbers that matter, and what to know before quoting them."""
    lines = headlines(report)
    several = ", ".join(filter(None, (f"{len(lines)} {'studies' if report.studies else 'tasks'}", count(report))))
    first = lines[0] if len(lines) == 1 else several
    points = join(fill("<li>$line</li>", line=line) for line in lines)
    return fill(
        '<header><p class="mark">manyhands</p><h1 class="$kind">$first</h1>$list<p class="soft">$what</p></header>'
        "$tiles$notes$still",
        kind="long" if len(first) > LONG else "",
        first=first,
        list=fill("<ul>$points</ul>", points=points) if len(lines) > 1 else "",
        what=what(report),
        tiles=_tiles(report),
        notes=join(paragraph(words, "note" if warning else "sure") for warning, words in notes(report)),
        still=paragraph("The plots need JavaScript; every number is in the tables.", "note still"),
    )


def _tiles(report: Report) -> Html:
    """The numbers that matter, large."""
    tiles: list[Tile] = []
    if len(report.studies) == 1:
        tiles = _study_tiles(report.studies[0])
    elif not report.studies and len(summary.tasks(report.rows)) == 1:
        tiles = _run_tiles(report.rows)
    parts = (
        fill(
            '<div class="tile"><strong>$fact $deviation</strong><span>$words</span></div>',
            fact=fact,
            deviation=fill("<small>± $deviation</small>", deviation=deviation) if deviation else "",
            words=words,
        )
        for fact, deviation, words in tiles
    )
    return fill('<div class="tiles">$parts</div>', parts=join(parts)) if tiles else Html("")


def _run_tiles(rows: Sequence[Row]) -> list[Tile]:
    """The winner's, and the first row's beside them."""
    best, base = summary.winner(rows), rows[0]
    if best is None:
        return []
    tiles = [
        _beside("", 0, 1, "samples a second", best.speed, base.speed, base.label),
        _beside(" s", 1, 1, "of training", best.seconds, base.seconds, base.label),
        _beside(" %", 1, 100, "test accuracy", best.accuracy, base.accuracy, base.label),
    ]
    if best is base:
        return [(fact, deviation, words.partition(";")[0]) for fact, deviation, words in tiles]
    if best.speedup is not None:
        tiles.insert(0, (times(best.speedup), "", f"as fast as {base.name}"))
    return tiles


def _beside(unit: str, digits: int, scale: float, words: str, one: Mean | None, other: Mean | None, label: str) -> Tile:
    fact, _, deviation = spread(one, digits, scale).partition(" ± ")
    beside = spread(other, digits, scale)
    return f"{fact}{unit}" if one else fact, deviation, f"{words}; {label} {beside}{unit if other else ''}"


def _study_tiles(study: Study) -> list[Tile]:
    """The best row by the study's own measure, the first, and how many ran."""
    best, measure = study.best, called(study.measure)
    if best is None:
        return []
    extreme = "least" if study.measure in LESS_IS_BETTER else "most"
    first = study.rows[0]
    tiles = [_measured(study, best.value(study.measure), f"{measure}, the {extreme}: {best.label}")]
    if first is not best:
        tiles.append(_measured(study, first.value(study.measure), f"{measure} of the first: {first.label}"))
    failed = sum(row.failed is not None for row in study.rows)
    words = "cases" + (f", {failed} with failures" if failed else "")
    return [*tiles, (str(len(study.rows)), "", words)]


def _measured(study: Study, value: Mean | None, words: str) -> Tile:
    fact, _, deviation = said(study.measure, value).partition(" ± ")
    unit = " %" if deviation.endswith(" %") else ""
    return fact + unit, deviation.removesuffix(" %"), words
