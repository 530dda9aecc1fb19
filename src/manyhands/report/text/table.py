"""Table: what is laid out in lines and columns, the same in the page and in Markdown."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from manyhands.report.data.study import called, said
from manyhands.report.data.summary import Row, tasks
from manyhands.stats import number, spread
from manyhands.studies.record import SIMULATION, Study, StudyRow, Value

UNKNOWN = "–"


@dataclass(frozen=True)
class Table:
    """Lines of text under their columns; the first `words` columns are no numbers."""

    columns: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    words: int = 1


Column = tuple[str, Callable[[Row], str]]


def results(rows: Sequence[Row]) -> Table:
    """A line a case; some of the columns are there only when a case fills them."""
    words: list[Column] = [("case", lambda row: row.label), ("precision", precision)]
    if len(tasks(rows)) > 1:
        words.insert(1, ("task", lambda row: row.task))
    always: list[Column] = [
        ("samples/s", lambda row: spread(row.speed)),
        ("speed-up", lambda row: UNKNOWN if row.speedup is None else f"{row.speedup:.2f}x"),
        ("training seconds", lambda row: spread(row.seconds, 1)),
        ("test accuracy, %", lambda row: spread(row.accuracy, 2, scale=100)),
    ]
    some: list[Column] = [
        ("ms a step", lambda row: spread(row.step, 2)),
        ("predicted", lambda row: spread(row.predicted, 2)),
        ("peak memory, MB", lambda row: spread(row.memory)),
        ("sent a step", sent),
    ]
    filled = [column for column in some if any(column[1](row) != UNKNOWN for row in rows)]
    columns = [*words, *always, *filled, ("n", lambda row: str(len(row.finished)))]
    return Table(
        tuple(name for name, _ in columns),
        tuple(tuple(told(row) for _, told in columns) for row in rows),
        words=len(words),
    )


def precision(row: Row) -> str:
    return ", ".join(dict.fromkeys(str((run.record.get("plan") or {}).get("precision", UNKNOWN)) for run in row.runs))


def sent(row: Row) -> str:
    """What a rank sends of its gradients in a step, and how many times fewer bytes that are for compression."""
    if row.sent is None:
        return UNKNOWN
    fewer = f" (1/{row.fewer.mean:.1f})" if row.fewer and row.fewer.mean > 1.01 else ""
    return f"{number(row.sent.mean / 1e6, 3)} MB{fewer}"


def of_study(study: Study) -> Table:
    """Our rows, with what the source printed for the same case beside them; its other rows follow."""
    measures = [name for name in _measures(study) if any(row.value(name) for row in study.rows)]
    extras = [name for name in dict.fromkeys(key for row in study.rows for key in row.extra) if name not in measures]
    printed = dict.fromkeys(key for row in study.published for key in row if key != "label")
    # A study may have a speed-up of its own, and what is simulated is not done n times.
    over_first = ["speed-up"] if "speed-up" not in extras and study.has_runs else []
    count = [] if study.by == SIMULATION else ["n"]
    columns = [
        "case",
        *map(called, measures),
        *over_first,
        *extras,
        *count,
        *(f"published: {name}" for name in printed),
    ]
    published = {str(row.get("label", UNKNOWN)): row for row in study.published}
    ours = {row.label for row in study.rows}
    lines = [
        (
            row.label,
            *(_cell(row, name) for name in measures),
            *(UNKNOWN if row.speedup is None else f"{row.speedup:.2f}x" for _ in over_first),
            *(said(name, row.extra.get(name)) for name in extras),
            *("failed" if row.failed and not row.n else str(row.n) for _ in count),
            *_printed(published.get(row.label, {}), printed),
        )
        for row in study.rows
    ]
    blank = [UNKNOWN] * (len(columns) - len(printed) - 1)
    others = [(label, *blank, *_printed(row, printed)) for label, row in published.items() if label not in ours]
    return Table(tuple(columns), (*lines, *others))


def _measures(study: Study) -> list[str]:
    """Its own measure first."""
    return list(dict.fromkeys((study.measure, "samples_per_s", "train_seconds", "test_accuracy")))


def _cell(row: StudyRow, measure: str) -> str:
    return said(measure, row.value(measure))


def _printed(row: Mapping[str, Value], names: Iterable[str]) -> list[str]:
    return [said(name, row.get(name)) for name in names]
