"""Page: runs as one HTML file that needs nothing else, the summary first."""

from collections.abc import Iterator, Sequence
from importlib.resources import files

from manyhands.report import sections, summary
from manyhands.report.html import Html, fill, join, paragraph
from manyhands.report.summary import Group, Mean, Row


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
    best = summary.winner(rows)
    if best is None:
        return Html("")
    base = rows[0] if rows[0] is not best else None
    facts = [
        (summary.number(_mean(best.speed)), "samples a second", base and summary.number(_mean(base.speed))),
        (
            f"{summary.number(_mean(best.seconds), 1)} s",
            "of training",
            base and f"{summary.number(_mean(base.seconds), 1)} s",
        ),
        (summary.percent(best.accuracy), "test accuracy", base and summary.percent(base.accuracy)),
    ]
    if base and best.speedup is not None:
        facts.insert(0, (summary.times(best.speedup), f"as fast as {base.name}", None))
    tiles = (
        fill(
            '<div class="tile"><strong>$fact</strong><span>$words</span></div>',
            fact=fact,
            words=f"{words}, {base.label} {beside}" if base and beside else words,
        )
        for fact, words, beside in facts
    )
    return fill('<div class="tiles">$tiles</div>', tiles=join(tiles))


def _mean(value: Mean | None) -> float | None:
    return value.mean if value else None


def _notes(rows: Sequence[Row]) -> Iterator[str]:
    """What a careful reader should know before quoting the numbers."""
    best, base = summary.winner(rows), rows[0]
    if best is None or best is base or not (best.speed and base.speed):
        return
    noise = summary.within_noise(best.speed, base.speed)
    if noise is None:
        yield "One run each: how much the numbers scatter from run to run is not known. More --repeats would tell."
    elif noise:
        yield f"The difference in speed is within noise: below two standard errors, n = {best.speed.n}, {base.speed.n}."
    if best.accuracy and base.accuracy and summary.within_noise(best.accuracy, base.accuracy):
        yield "The difference in accuracy is within noise: below two standard errors."
