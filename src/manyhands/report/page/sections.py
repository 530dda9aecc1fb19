"""Sections: the parts of the page under its head, each a function from what was found to HTML."""

from collections.abc import Iterator, Sequence

from manyhands.report.charts.palette import places
from manyhands.report.charts.spec import Panel
from manyhands.report.data import layers, summary
from manyhands.report.data.summary import Row
from manyhands.report.gather import Report
from manyhands.report.page import plan_sections, study_sections
from manyhands.report.page.html import Html, Section, dotted, facts, fill, join, paragraph, section, table
from manyhands.report.page.panels import Panels
from manyhands.report.text import table as tables
from manyhands.report.text.headline import commands, machine
from manyhands.runs.run_folder import Run
from manyhands.stats import number, times

PHASES = {  # what a run's seconds went into, and its place in the palette
    "setup": ("start-up", 6),
    "search": ("search", 5),
    "compile": ("compile", 4),
    "train": ("train", 1),
    "eval": ("evaluate", 3),
    "checkpoint": ("checkpoint", 7),
    "layers": ("time layers", 2),
    "other": ("other", 0),
}


def of(report: Report, panels: Panels) -> Iterator[Section]:
    """All parts, in their order; one that has nothing to show is left out."""
    for study, panel in zip(report.studies, report.drawn.studies, strict=True):
        yield study_sections.of(study, panel, panels, alone=len(report.studies) == 1)
    if report.rows:
        yield from _runs(report, panels)
    yield _again(report)


def _runs(report: Report, panels: Panels) -> Iterator[Section]:
    """What runs tell; studies that were simulated have none."""
    rows, drawn = report.rows, report.drawn
    yield _results(rows, None if report.studies else summary.winner(rows))
    yield section("Speed and learning", _grid(drawn.runs, panels))
    if drawn.timeline:
        words = "Drag over a part of it, or spread two fingers, to look closer; a double click shows all again."
        yield section("Timeline", paragraph(words, "soft"), panels.put(drawn.timeline))
    if drawn.layers and (fastest := layers.fastest_run(rows)):
        yield _layers(rows, fastest, panels.put(drawn.layers))
    if any(row.finished for row in rows):
        yield _phases(rows)
    yield plan_sections.plans(rows)
    yield from plan_sections.trials(rows)
    names = ", ".join(run.name for row in rows for run in row.runs)
    yield section("Machine and versions", facts({**machine(rows), "runs": names}))


def _grid(several: Sequence[Panel], panels: Panels) -> Html:
    return fill('<div class="panels">$panels</div>', panels=join(map(panels.put, several)))


def _results(rows: Sequence[Row], best: Row | None) -> Section:
    told = tables.results(rows)
    alone = len(rows) == 1 or len(summary.tasks(rows)) > 1
    lines = [
        (dotted(fill("<b>$label</b>", label=line[0]) if row is best and not alone else line[0], place), *line[1:])
        for row, line, place in zip(rows, told.lines, places(len(rows)), strict=True)
    ]
    errors = (paragraph(f"{row.label}: {error}", "error") for row in rows for error in row.errors)
    deviation = paragraph(
        "± is the sample deviation over n runs; samples/s leaves out the first steps of a training, which warm up.",
        "soft",
    )
    return section("Side by side", table(told.columns, lines, told.words), *errors, deviation)


def _layers(rows: Sequence[Row], run: Run, figure: Html) -> Section:
    every: list[layers.Layer] = run.record["layers"]
    label = next(row.label for row in rows if run in row.runs)
    lines = [
        (
            each["name"],
            each["kind"],
            f"{each['parameters']:,}",
            number(each["forward_ms"], 2),
            number(each["backward_ms"], 2),
            times(layers.ratio(each)),
        )
        for each in [*every, layers.total(every, "all")]
    ]
    columns = ["layer", "kind", "parameters", "forward ms", "backward ms", "ratio"]
    both = fill('<div class="beside">$figure$table</div>', figure=figure, table=table(columns, lines, words=2))
    note = paragraph(f"Each layer of {label} timed apart, on the input that it really gets.", "soft")
    return section("Where a step's time goes", note, both)


def _phases(rows: Sequence[Row]) -> Section:
    runs = [(run, _seconds(run)) for row in rows for run in row.finished]
    longest = max(sum(seconds.values()) for _, seconds in runs) or 1.0
    used = [phase for phase in PHASES if any(seconds[phase] >= 0.05 for _, seconds in runs)]
    legend = join(fill("<span>$entry</span>", entry=dotted(*PHASES[phase])) for phase in used)
    lines = [
        (
            run.name,
            _bar(seconds, longest),
            *(number(seconds[phase], 1) for phase in used),
            number(sum(seconds.values()), 1),
        )
        for run, seconds in runs
    ]
    columns = ["run", "", *(PHASES[phase][0] for phase in used), "total"]
    return section(
        "Where the seconds went",
        fill('<div class="legend">$legend</div>', legend=legend),
        table(columns, lines, words=2),
    )


def _seconds(run: Run) -> dict[str, float]:
    """Seconds by phase, with what no phase accounts for."""
    told: dict[str, float] = (run.result or {}).get("seconds") or {}
    seconds = {phase: max(0.0, told.get(phase) or 0.0) for phase in PHASES}
    seconds["other"] = max(0.0, (told.get("total") or 0.0) - sum(seconds.values()))
    return seconds


def _bar(seconds: dict[str, float], longest: float) -> Html:
    parts = (
        fill(
            '<i style="background:var(--c$place);width:$share%"></i>',
            place=PHASES[phase][1],
            share=f"{100 * value / longest:.2f}",
        )
        for phase, value in seconds.items()
    )
    return fill('<div class="bar">$parts</div>', parts=join(parts))


def _again(report: Report) -> Section:
    return section("Make it again", *(fill("<pre>$command</pre>", command=each) for each in commands(report)))
