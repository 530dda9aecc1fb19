"""Gather: what was found in folders, ready to be written as a page, as Markdown, as CSV and as pictures."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from manyhands.errors import InputError
from manyhands.report.charts import runs as charts
from manyhands.report.charts import studies as study_charts
from manyhands.report.charts import timelines, training_curves
from manyhands.report.charts.spec import Chart, Panel
from manyhands.report.data import summary
from manyhands.report.data.group import Group, group
from manyhands.report.data.layers import fastest_run
from manyhands.report.data.summary import Row
from manyhands.runs import run_folder
from manyhands.studies import record
from manyhands.studies.record import Study

Skipped = tuple[tuple[Path, str], ...]  # folders of what cannot be read, and why


@dataclass(frozen=True)
class Drawn:
    """The charts of a report, by the part of it that they belong to."""

    studies: tuple[Panel | None, ...]
    runs: tuple[Panel, ...]
    timeline: Panel | None
    layers: Panel | None
    skipped: Skipped

    def __iter__(self) -> Iterator[Chart]:
        for panel in (*self.studies, *self.runs, self.timeline, self.layers):
            yield from panel.charts.values() if panel else ()


@dataclass(frozen=True)
class Report:
    """Rows of runs, the studies that they were made for, and the command that makes the report again."""

    rows: tuple[Row, ...]
    studies: tuple[Study, ...]
    damaged: Skipped
    command: str

    @property
    def finding(self) -> str:
        """What a study found is what counts; without one, what the runs say together."""
        told = [each for each in self.studies if each.finding]
        if len(told) == 1:
            return told[0].finding
        return " ".join(f"{each.title}: {each.finding}" for each in told) or summary.conclusion(self.rows)

    @property
    def skipped(self) -> Skipped:
        return (*self.damaged, *self.drawn.skipped)

    @cached_property
    def drawn(self) -> Drawn:
        """All charts: made once, since they read the metrics of every run."""
        studies = tuple(study_charts.panel(each) for each in self.studies)
        if not self.rows:
            return Drawn(studies, (), None, None, ())
        timeline, unreadable = timelines.panel(self.rows)
        apart = [panel for panel in (charts.tradeoff(self.rows), charts.staleness(self.rows)) if panel]
        timed = fastest_run(self.rows)
        return Drawn(
            studies=studies,
            runs=(charts.speed(self.rows), *training_curves.panels(self.rows), *apart),
            timeline=timeline,
            layers=charts.layers(timed.record["layers"]) if timed else None,
            skipped=tuple(unreadable),
        )


def of_groups(groups: Sequence[Group], command: str) -> Report:
    """The report of runs that are named and grouped already."""
    return Report(tuple(summary.rows(groups)), (), (), command)


def gather(paths: Sequence[Path], command: str) -> Report:
    """All runs and studies in these folders, each once."""
    runs: dict[Path, run_folder.Run] = {}
    studies: dict[Path, Study] = {}
    damaged: dict[Path, str] = {}
    for path in paths:
        if not path.is_dir():
            raise InputError(f"there is no folder {path}: give that of a run, or one that holds runs")
        found, unreadable = run_folder.find_all(path)
        told, untold = record.find(path)
        runs.update((run.folder.resolve(), run) for run in found)
        studies.update((each.folder.resolve(), each) for each in told)
        damaged.update((folder, reason) for folder, reason in (*unreadable, *untold))
    if not runs and not studies:
        said = "; ".join(f"{folder.name}: {reason}" for folder, reason in list(damaged.items())[:3])
        where = ", ".join(map(str, paths))
        raise InputError(
            f"no runs in {where}{f' that can be read ({said})' if said else ''}: `manyhands runs` lists yours"
        )
    ordered = sorted(runs.values(), key=lambda run: str(run.record.get("created", "")))
    rows = summary.rows(group(ordered))
    return Report(tuple(rows), tuple(studies.values()), tuple(damaged.items()), command)
