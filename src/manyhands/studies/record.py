"""Record: study.json as typed rows, read with care, since anybody may have written it."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from manyhands.errors import UNREADABLE
from manyhands.files import read as read_file
from manyhands.runs import run_folder
from manyhands.stats import Mean

FILE = "study.json"
AMDAHL = "Amdahl"
TRAINING, SIMULATION = "training", "simulation"  # how rows came about
MOST_BYTES = 16_000_000
# What a file raises that is none.
MEASURES = {
    "samples_per_s": "samples a second",
    "train_seconds": "seconds of training",
    "test_accuracy": "test accuracy",
}
LESS_IS_BETTER = ("train_seconds", "seconds")
Value = Mean | float | str | None


@dataclass(frozen=True)
class StudyRow:
    """One case of a study; a measure that no run gave is missing."""

    label: str
    cell: Mapping[str, str]  # what is varied
    measures: Mapping[str, Mean]
    speedup: float | None  # over the first row
    n: int
    failed: str | None
    runs: tuple[str, ...]
    extra: Mapping[str, Value]

    def value(self, measure: str) -> Mean | None:
        """A measure, be it one that every study has or one of its own."""
        own = self.extra.get(measure)
        if isinstance(own, float):
            return Mean(own, 0.0, 1)
        return self.measures.get(measure) or (own if isinstance(own, Mean) else None)


@dataclass(frozen=True)
class Fit:
    """Speed-ups over ranks, and the share of the work that stays serial by a law."""

    label: str
    serial_fraction: float
    points: tuple[tuple[float, float], ...]
    law: str = AMDAHL

    def speedup(self, ranks: float) -> float:
        """What the law says; the other one is Gustafson's, where the work grows with the ranks."""
        share = self.serial_fraction
        return 1 / (share + (1 - share) / ranks) if self.law == AMDAHL else ranks - share * (ranks - 1)

    def __str__(self) -> str:
        share = self.serial_fraction
        most = f", at most {1 / share:.1f}x" if share and self.law == AMDAHL else ""
        return f"{self.label}: {100 * share:.1f} % stays serial by {self.law}'s law{most}"


@dataclass(frozen=True)
class Study:
    """A published experiment that was made again."""

    folder: Path
    name: str
    title: str
    source: str
    by: str  # training, simulation or search
    command: str
    used: str | None
    here: str
    there: str
    versions: str
    axes: tuple[str, ...]
    plot: str
    measure: str
    rows: tuple[StudyRow, ...]
    published: tuple[Mapping[str, Value], ...]
    fits: tuple[Fit, ...]
    left_out: Mapping[str, tuple[str, ...]]  # by the reason, what is
    differs: str
    finding: str

    @property
    def has_runs(self) -> bool:
        """Whether its cells were trained, so that runs tell more of them."""
        return self.by == TRAINING

    @property
    def best(self) -> StudyRow | None:
        """The row that does best by the study's own measure."""
        sign = -1 if self.measure in LESS_IS_BETTER else 1
        known = [(sign * value.mean, row) for row in self.rows if (value := row.value(self.measure))]
        return max(known, key=lambda pair: pair[0], default=(0.0, None))[1]


def find(parent: Path) -> tuple[list[Study], list[tuple[Path, str]]]:
    """The studies in a folder and two below, and the folders of those that cannot be read, with the reason."""
    studies, damaged = [], []
    for path in run_folder.found_below(parent, FILE):
        try:
            studies.append(read(path))
        except UNREADABLE as error:
            said = str(error).splitlines()[0] if str(error) else type(error).__name__
            damaged.append((path.parent, f"{FILE} cannot be read ({said[:200]})"))
    return studies, damaged


def read(path: Path) -> Study:
    """A study; the ordinary errors of a wrong type or a missing key where it is none."""
    return of(path.parent, read_file(path, MOST_BYTES))


def of(folder: Path, content: bytes) -> Study:
    """A study from what its file holds."""
    told: dict[str, Any] = json.loads(content)
    json.dumps(told, ensure_ascii=False).encode()  # half characters can be written nowhere
    hardware = told.get("hardware") or {}
    return Study(
        folder=folder,
        name=str(told["study"]),
        title=str(told.get("title") or told["study"]),
        source=str(told.get("source") or ""),
        by=str(told.get("by") or TRAINING),
        command=str(told.get("command") or ""),
        used=str(told["used"]) if told.get("used") else None,
        here=str(hardware.get("here") or "–"),
        there=str(hardware.get("published") or "–"),
        versions=", ".join(f"{name} {version}" for name, version in (told.get("versions") or {}).items()),
        axes=tuple(map(str, told.get("axes") or ())),
        plot=str(told.get("plot") or "none"),
        measure=str(told.get("measure") or "samples_per_s"),
        rows=tuple(map(_row, told["rows"])),
        published=tuple(map(_values, told.get("published") or ())),
        fits=tuple(map(_fit, told.get("fits") or ())),
        left_out=_left_out(told.get("left_out") or ()),
        differs=str(told.get("differs") or ""),
        finding=str(told.get("finding") or ""),
    )


def _row(told: Mapping[str, Any]) -> StudyRow:
    count = int(told.get("n") or 0)
    measures = {name: _mean(told[name], count) for name in MEASURES if told.get(name) is not None}
    return StudyRow(
        label=str(told["label"]),
        cell={str(name): str(value) for name, value in (told.get("cell") or {}).items()},
        measures=measures,
        speedup=None if told.get("speedup") is None else _number(told["speedup"]),
        n=count,
        failed=str(told["failed"]) if told.get("failed") else None,
        runs=tuple(map(str, told.get("runs") or ())),
        extra=_values(told.get("extra") or {}, count),
    )


def _mean(told: Mapping[str, Any], count: int) -> Mean:
    return Mean(_number(told["mean"]), _number(told.get("std") or 0.0), max(1, count))


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e300:
        raise ValueError(f"{str(value)[:40]!r} is no number")
    return float(value)


def _values(told: Mapping[str, Any], count: int = 1) -> dict[str, Value]:
    """Free columns: numbers, means with deviations, or words."""
    return {str(name): _value(value, count) for name, value in told.items()}


def _value(value: Any, count: int) -> Value:
    if isinstance(value, Mapping):
        return _mean(value, count)
    if value is None or isinstance(value, str):
        return value
    return _number(value)


def _left_out(told: Iterable[Mapping[str, Any]]) -> dict[str, tuple[str, ...]]:
    reasons: dict[str, tuple[str, ...]] = {}
    for each in told:
        reasons[str(each["reason"])] = (*reasons.get(str(each["reason"]), ()), str(each["label"]))
    return reasons


def _fit(told: Mapping[str, Any]) -> Fit:
    points = tuple((_number(ranks), _number(speedup)) for ranks, speedup in told["points"])
    fraction = _number(told["serial_fraction"])
    if not 0 <= fraction <= 1 or not points or any(ranks < 1 for ranks, _ in points):
        raise ValueError(f"a fit over {len(points)} points with a serial part of {fraction:g}")
    return Fit(str(told["label"]), fraction, tuple(sorted(points)), str(told.get("law") or AMDAHL))
