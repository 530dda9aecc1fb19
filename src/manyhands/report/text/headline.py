"""Headline: title, main figures, notes and commands of a report, as plain text for page and Markdown alike."""

from collections.abc import Iterator, Sequence

from manyhands.report.data import summary
from manyhands.report.data.study import called
from manyhands.report.data.summary import Row, setting
from manyhands.report.gather import Report
from manyhands.stats import number, within_noise
from manyhands.studies.record import SIMULATION, Study

MOST_NAMED = 4  # cases named in a sentence
MOST_SKIPPED = 20  # folders named in a warning
Note = tuple[bool, str]  # whether it is a warning, and the sentence


def headlines(report: Report) -> list[str]:
    """The finding of the study, or of each task; with several, each begins with what it is about."""
    told = [(each.title, each.finding) for each in report.studies if each.finding]
    if not told:
        told = [(task, summary.conclusion(rows)) for task, rows in summary.tasks(report.rows).items()]
    return [told[0][1]] if len(told) == 1 else [f"{about}: {finding}" for about, finding in told]


def title(report: Report) -> str:
    """What the page is about, in few words."""
    names = [each.title for each in report.studies] or list(summary.tasks(report.rows))
    return " and ".join(names) if len(names) <= 2 else f"{names[0]} and {len(names) - 1} others"


def what(report: Report) -> str:
    """What was compared, and how much was trained."""
    if len(report.studies) == 1:
        (study,) = report.studies
        parts = (study.title, study.source, study.used, count(report))
        return ". ".join(part.rstrip(".") for part in parts if part) + "."
    if report.studies:
        return ""
    names = [row.name for row in report.rows]
    ways = f"in {len(names)} ways" if len(names) > MOST_NAMED else f"with {' and with '.join(names)}"
    return f"{title(report)}, trained {ways}: {count(report)}. {size(report.rows)}"


def count(report: Report) -> str:
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


MOST_COMMANDS = 20


def machine(rows: Sequence[Row]) -> dict[str, str]:
    """Where the runs ran and with what; what differs between runs is told one after the other."""
    records = [run.record for row in rows for run in row.runs]
    versions = (
        ", ".join(f"{name} {version}" for name, version in (each.get("versions") or {}).items()) for each in records
    )
    return {
        "machine": "; ".join(dict.fromkeys(str(each.get("machine_words") or "–") for each in records)),
        "system": "; ".join(dict.fromkeys(str((each.get("machine") or {}).get("system", "–")) for each in records)),
        "versions": "; ".join(dict.fromkeys(versions)),
    }


def commands(report: Report) -> list[str]:
    """Those of its studies, those of its runs, and its own, each once."""
    own = (str(run.record.get("command") or "") for row in report.rows for run in row.runs)
    every = dict.fromkeys((*(study.command for study in report.studies), *own))
    return [*[command for command in every if command][:MOST_COMMANDS], report.command]
