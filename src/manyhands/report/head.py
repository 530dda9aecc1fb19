"""Head: what a reader of the page sees first: what was found, by how much, and how sure that is."""

from collections.abc import Iterator, Sequence

from manyhands.report import summary
from manyhands.report.html import Html, fill, join, paragraph
from manyhands.report.means import Mean, number, spread, times, within_noise
from manyhands.report.report import Report
from manyhands.report.study import LESS_IS_BETTER, SIMULATION, Study, called, said
from manyhands.report.summary import Row, setting

LONG = 120  # letters of a headline, from which it is set smaller
MOST_NAMED = 4  # cases named in a sentence
MOST_SKIPPED = 20  # folders named in a warning

Tile = tuple[str, str, str]  # a fact, its deviation, and what it is
Note = tuple[bool, str]  # whether it is a warning, and the sentence


def head(report: Report) -> Html:
    """The headline, what was compared, the numbers that matter, and what to know before quoting them."""
    lines = headlines(report)
    several = ", ".join(filter(None, (f"{len(lines)} {'studies' if report.studies else 'tasks'}", _count(report))))
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


def headlines(report: Report) -> list[str]:
    """The finding of the study, or of each task; with several, each begins with what it is about."""
    told = [(each.title, each.finding) for each in report.studies if each.finding]
    if not told:
        told = [(task, summary.finding(rows)) for task, rows in summary.tasks(report.rows).items()]
    return [told[0][1]] if len(told) == 1 else [f"{about}: {finding}" for about, finding in told]


def title(report: Report) -> str:
    """What the page is about, in few words."""
    names = [each.title for each in report.studies] or list(summary.tasks(report.rows))
    return " and ".join(names) if len(names) <= 2 else f"{names[0]} and {len(names) - 1} others"


def what(report: Report) -> str:
    """What was compared, and how much was trained."""
    if len(report.studies) == 1:
        (study,) = report.studies
        parts = (study.title, study.source, study.used, _count(report))
        return ". ".join(part.rstrip(".") for part in parts if part) + "."
    if report.studies:
        return ""
    names = [row.name for row in report.rows]
    ways = f"in {len(names)} ways" if len(names) > MOST_NAMED else f"with {' and with '.join(names)}"
    return f"{title(report)}, trained {ways}: {_count(report)}. {size(report.rows)}"


def _count(report: Report) -> str:
    runs = sum(len(row.runs) for row in report.rows)
    if not runs:
        return ""
    return f"{runs:,} {'run' if runs == 1 else 'runs'}"


def size(rows: Sequence[Row]) -> str:
    """How much was trained, where all runs agree."""
    sizes = {
        (run.record["samples"].get("train"), setting(run, "train", "epochs"), setting(run, "train", "batch_size"))
        for row in rows
        for run in row.runs
        if run.record.get("samples")
    }
    if len(sizes) != 1:
        return ""
    ((samples, epochs, batch),) = sizes
    return f"{number(samples)} training samples, {epochs} {'epoch' if epochs == 1 else 'epochs'}, batches of {batch}."


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


def notes(report: Report) -> Iterator[Note]:
    """What a careful reader should know before quoting the numbers, and what is missing."""
    if len(report.studies) == 1:
        yield from _study_notes(report.studies[0])
    elif not report.studies:
        for rows in summary.tasks(report.rows).values():
            yield from summary.sureness(rows)
    going = sum(run.status == "running" for row in report.rows for run in row.runs)
    if going:
        yield True, f"{going} of the runs had not ended when this was written; a killed one looks the same."
    if report.skipped:
        named = "; ".join(f"{folder}: {reason}" for folder, reason in report.skipped[:MOST_SKIPPED])
        more = f"; and {len(report.skipped) - MOST_SKIPPED} more" if len(report.skipped) > MOST_SKIPPED else ""
        yield True, f"Left out, since it cannot be read: {named}{more}."


def _study_notes(study: Study) -> Iterator[Note]:
    best = study.best
    value = best.value(study.measure) if best else None
    if value is None:
        return
    if study.by == SIMULATION:
        yield True, "Predicted by simulation: nothing was trained, and what a real machine does may differ."
        return
    if value.n < 2:
        yield True, "Single runs: how much the numbers scatter from run to run is not known."
    alike = [
        row.label
        for row in study.rows
        if row is not best and (other := row.value(study.measure)) and within_noise(value, other)
    ]
    if best and alike:
        named = ", ".join(alike[:MOST_NAMED]) + (" and others" if len(alike) > MOST_NAMED else "")
        yield True, f"In {called(study.measure)}, {best.label} is within noise (two standard errors) of {named}."
