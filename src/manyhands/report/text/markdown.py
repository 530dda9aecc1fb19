"""Markdown: a report as GitHub shows it: the finding, the tables, the machine and the commands."""

from collections.abc import Iterator, Sequence

from manyhands.report.gather import Report
from manyhands.report.text import headline, table
from manyhands.report.text.table import Table
from manyhands.studies.record import Study

# Signs with which words would become links, pictures, code, markup or another cell.
SIGNS = str.maketrans({sign: f"\\{sign}" for sign in "\\|`*[]"} | {"<": "&lt;", "&": "&amp;"})


def markdown(report: Report) -> str:
    """The whole report."""
    text = "\n\n".join(_blocks(report)) + "\n"
    return text.encode(errors="replace").decode()  # the name of a folder may be no text


def _blocks(report: Report) -> Iterator[str]:
    yield f"# {plain(headline.title(report))}"
    yield from (f"**{plain(line)}**" for line in headline.headlines(report))
    if not report.studies:
        yield plain(headline.what(report))
    yield from (f"> {plain(words)}" for _, words in headline.notes(report))
    for study in report.studies:
        yield from _study(study, alone=len(report.studies) == 1)
    if not report.studies:
        yield _table(table.results(report.rows))
        yield "± is the sample deviation over n runs; samples/s leaves out the first steps, which warm up."
        yield from (f"- {plain(row.label)} failed: {plain(error)}" for row in report.rows for error in row.errors)
    said = {study.here for study in report.studies}
    if report.rows:
        facts = headline.machine(report.rows).items()
        yield "\n".join(f"- {name}: {plain(fact)}" for name, fact in facts if fact not in said)
    yield _code(headline.commands(report))


def _study(study: Study, alone: bool) -> Iterator[str]:
    if not alone:
        yield f"## {plain(study.title)}"
        yield f"**{plain(study.finding)}**"
    facts = {
        "Source": study.source,
        "Published on": study.there,
        "Here": study.here,
        "Used": study.used,
        "Versions": None if study.has_runs else study.versions,
        "Differs from the source in": study.differs,
    }
    yield "\n".join(f"- {name}: {plain(fact)}" for name, fact in facts.items() if fact)
    yield _table(table.of_study(study))
    if study.fits:
        yield "\n".join(f"- {plain(fit)}" for fit in study.fits)
    missing = [f"- {plain(row.label)} failed: {plain(row.failed)}" for row in study.rows if row.failed]
    missing += [f"- left out: {plain('; '.join(labels))}: {plain(why)}" for why, labels in study.left_out.items()]
    if missing:
        yield "\n".join(missing)


def plain(words: object) -> str:
    """Words on one line that mean nothing but themselves."""
    return " ".join(str(words).split()).translate(SIGNS)


def _table(told: Table) -> str:
    rule = ["---" if number < told.words else "---:" for number in range(len(told.columns))]
    lines = [map(plain, told.columns), rule, *(map(plain, line) for line in told.lines)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _code(commands: Sequence[str]) -> str:
    """Commands in a block whose fence is longer than any row of backticks in them."""
    told = [" ".join(command.split()) for command in commands]
    longest = max((len(part) for command in told for part in _ticks(command)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([f"{fence}sh", *told, fence])


def _ticks(command: str) -> list[str]:
    return "".join(sign if sign == "`" else " " for sign in command).split()
