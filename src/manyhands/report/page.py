"""Page: runs as one HTML file that needs nothing else, the summary first."""

from collections.abc import Iterator, Sequence
from importlib.resources import files

from manyhands.report import sections, summary
from manyhands.report.html import Html, fill, join, paragraph
from manyhands.report.summary import Group, Row


def page(groups: Sequence[Group], command: str) -> str:
    """The whole page; `command` makes it again."""
    rows = summary.rows(groups)
    title = _title(rows)
    body = join([_head(rows, title), *sections.of(rows, command)])
    template = files("manyhands.report").joinpath("page.html").read_text(encoding="utf-8")
    return fill(template, title=f"{title} – manyhands", body=body)


def _title(rows: Sequence[Row]) -> str:
    """What was trained on what."""
    configs = [run.record["config"] for row in rows for run in row.runs]
    models = dict.fromkeys(str(each["model"]["name"]) for each in configs)
    data = dict.fromkeys(str(each["data"]["name"]) for each in configs)
    return f"{' and '.join(models)} on {' and '.join(data)}"


def _head(rows: Sequence[Row], title: str) -> Html:
    return fill(
        '<header><p class="mark">manyhands</p><h1>$finding</h1><p class="soft">$what</p></header>$tiles$notes',
        finding=summary.finding(rows),
        what=f"{title}, trained with {' and with '.join(row.name for row in rows)}. {_size(rows)}",
        tiles=_tiles(rows),
        notes=join(paragraph(note, "note") for note in _notes(rows)),
    )


def _size(rows: Sequence[Row]) -> str:
    """How much was trained, where all runs agree."""
    sizes = {
        (
            run.record["samples"]["train"],
            run.record["config"]["train"]["epochs"],
            run.record["config"]["train"]["batch_size"],
        )
        for row in rows
        for run in row.runs
        if run.record.get("samples")
    }
    if len(sizes) != 1:
        return ""
    ((samples, epochs, batch),) = sizes
    return f"{samples:,} training samples, {epochs} {'epoch' if epochs == 1 else 'epochs'}, batches of {batch:,}."


def _tiles(rows: Sequence[Row]) -> Html:
    """The numbers that matter, large: the winner's, and the first row's beside them."""
    best, base = summary.winner(rows), rows[0]
    if best is None:
        return Html("")
    tiles = [
        (fact, words if best is base else f"{words}, {base.label} {beside}")
        for (fact, words), (beside, _) in zip(_facts(best), _facts(base), strict=True)
    ]
    if best is not base and best.speedup is not None:
        tiles.insert(0, (summary.times(best.speedup), f"as fast as {base.name}"))
    parts = (
        fill('<div class="tile"><strong>$fact</strong><span>$words</span></div>', fact=fact, words=words)
        for fact, words in tiles
    )
    return fill('<div class="tiles">$parts</div>', parts=join(parts))


def _facts(row: Row) -> list[tuple[str, str]]:
    return [
        (summary.number(row.speed.mean if row.speed else None), "samples a second"),
        (f"{summary.number(row.seconds.mean, 1)} s" if row.seconds else "–", "of training"),
        (summary.percent(row.accuracy), "test accuracy"),
    ]


def _notes(rows: Sequence[Row]) -> Iterator[str]:
    """What a careful reader should know before quoting the numbers."""
    base = rows[0]
    other = summary.winner(rows) if summary.winner(rows) is not base else summary.winner(rows[1:])
    if other is None or not (other.speed and base.speed):
        return
    noise = summary.within_noise(other.speed, base.speed)
    if noise is None:
        yield "Single runs: how much the numbers scatter from run to run is not known. More --repeats would tell."
    elif noise:
        yield "The difference in speed is within noise: below two standard errors."
    if other.accuracy and base.accuracy and summary.within_noise(other.accuracy, base.accuracy):
        yield "The difference in accuracy is within noise: below two standard errors."
