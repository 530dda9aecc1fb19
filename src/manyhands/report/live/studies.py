"""Studies: what the study.json of each study in the served folder tells, as words and a table."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from manyhands.errors import UNREADABLE, InputError
from manyhands.files import read
from manyhands.report.live.files import Cache, Stamp
from manyhands.report.live.values import tidy
from manyhands.report.text.table import of_study
from manyhands.studies import record

MOST = 100  # that a page shows


@dataclass(frozen=True)
class FoundStudy:
    """A study's file, the name of its folder below the served one, and its state."""

    path: str
    name: str
    stamp: Stamp


class Studies:
    """Reads studies; what has not changed since the last time is not read again."""

    def __init__(self) -> None:
        self.read = Cache(study_details, most=MOST)

    def of(self, found: Iterable[FoundStudy]) -> list[dict[str, Any]]:
        """Each with the name of its folder; one that cannot be read with the reason."""
        answers = []
        for each in list(found)[:MOST]:
            try:
                answers.append({"name": each.name, "error": None, **(self.read.of(each.path) or {})})
            except InputError as error:
                answers.append({"name": each.name, "error": str(error)})
        return answers


def study_details(path: str) -> dict[str, Any]:
    """One study, for the page."""
    try:
        found = record.of(Path(path).parent, read(path, record.MOST_BYTES))
    except UNREADABLE as error:
        raise InputError(f"{record.FILE} cannot be read ({type(error).__name__}: {str(error)[:200]})") from None
    table = of_study(found)
    answer: dict[str, Any] = tidy(
        {
            "title": found.title,
            "by": found.by,
            "finding": found.finding,
            "facts": {
                "source": found.source,
                "here": found.here,
                "published on": found.there,
                "used": found.used,
                "differs from the source in": found.differs,
                "command": found.command,
            },
            "notes": [
                *(f"{row.label} failed: {row.failed}" for row in found.rows if row.failed),
                *(f"left out: {'; '.join(labels)}: {why}" for why, labels in found.left_out.items()),
            ],
            "columns": list(table.columns),
            "lines": [list(line) for line in table.lines],
            "words": table.words,
        }
    )
    return answer
