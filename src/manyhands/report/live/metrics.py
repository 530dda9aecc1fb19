"""Metrics: the curve of a run, read on from where the last look ended."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import ceil
from threading import Lock
from typing import Any

from manyhands.errors import InputError
from manyhands.files import opened
from manyhands.report.live.files import stamp
from manyhands.report.live.values import number

MOST_POINTS = 500  # of a curve: more do not show
MOST_BYTES = 64_000_000  # some 800,000 steps, which are read in about two seconds

MARK = ("step", "epoch", "val_accuracy", "val_loss")


@dataclass(slots=True)
class Point:
    """The mean loss over some steps, at the last of them; None where no loss was a number."""

    step: float
    seconds: float
    steps: int = 0
    total: float = 0.0
    losses: int = 0

    @property
    def loss(self) -> float | None:
        return number(self.total / self.losses) if self.losses else None

    def take(self, later: "Point") -> None:
        self.step, self.seconds = later.step, later.seconds
        self.steps, self.total, self.losses = (
            self.steps + later.steps,
            self.total + later.total,
            self.losses + later.losses,
        )


class Points:
    """At most MOST_POINTS means, each over the same number of steps, however many steps there come to be."""

    def __init__(self) -> None:
        self.width, self.kept = 1, list[Point]()

    def add(self, step: float, seconds: float, loss: float | None) -> None:
        new = Point(step, seconds, 1, loss or 0.0, loss is not None)
        if self.kept and self.kept[-1].steps < self.width:
            self.kept[-1].take(new)
            return
        if len(self.kept) == MOST_POINTS:
            self._halve()
        self.kept.append(new)

    def _halve(self) -> None:
        for left, right in zip(self.kept[::2], self.kept[1::2], strict=True):
            left.take(right)
        del self.kept[1::2]
        self.width *= 2


@dataclass
class Curve:
    """What the lines of one metrics.jsonl have said so far."""

    points: Points = field(default_factory=Points)
    marks: list[tuple[float | None, ...]] = field(default_factory=list)  # a validation each, as MARK, then seconds
    seconds: float = 0.0  # of training
    bad_lines: int = 0

    def add(self, lines: list[bytes]) -> None:
        for record in _parsed(lines):
            step = number(record.get("step")) if isinstance(record, dict) else None
            if step is None:
                self.bad_lines += 1
            elif "loss" in record:
                self.seconds += (number(record.get("ms")) or 0.0) / 1000
                self.points.add(step, self.seconds, number(record["loss"]))
            elif "val_loss" in record or "val_accuracy" in record:
                self.marks.append((*(number(record.get(name)) for name in MARK), self.seconds))

    def to_json(self) -> dict[str, Any]:
        points, shown = self.points.kept, self.marks[:: max(1, ceil(len(self.marks) / MOST_POINTS))]
        if shown and shown[-1] is not self.marks[-1]:
            shown.append(self.marks[-1])
        return {
            "step": [each.step for each in points],
            "seconds": [round(each.seconds, 4) for each in points],
            "loss": [each.loss for each in points],
            "marks": {name: [mark[at] for mark in shown] for at, name in enumerate((*MARK, "seconds"))},
        }


def _parsed(lines: list[bytes]) -> Iterator[Any]:
    """The values of lines, None for what is no JSON; all at once where all are well, which takes half the time."""
    try:
        records = json.loads(b"[%s]" % b",".join(lines))
        if len(records) == len(lines):
            yield from records
            return
    except (ValueError, RecursionError):
        pass
    for line in lines:
        try:
            yield json.loads(line)
        except (ValueError, RecursionError):
            yield None


class Metrics:
    """The metrics.jsonl of one run and how far it was read; safe under several requests at once."""

    def __init__(self, path: str) -> None:
        self.path, self.lock = path, Lock()
        self.curve, self.inode, self.offset = Curve(), 0, 0

    def read(self) -> tuple[dict[str, Any], list[str]]:
        """The curve as it is now, and what was wrong with the file."""
        with self.lock:
            warnings = []
            try:
                if stamp(self.path) is not None:
                    self._read_on()
            except InputError as error:
                warnings.append(str(error))
            if self.curve.bad_lines:
                warnings.append(f"{self.curve.bad_lines:,} lines of metrics.jsonl are no metrics and were passed over")
            return self.curve.to_json(), warnings

    def _read_on(self) -> None:
        with opened(self.path) as (descriptor, size):
            inode = os.fstat(descriptor).st_ino
            if inode != self.inode or size < self.offset:  # a resumed run has cut the end off
                self.curve, self.inode, self.offset = Curve(), inode, 0
            if size > MOST_BYTES:
                raise InputError(
                    f"metrics.jsonl has {size / 1e6:,.0f} MB: what is beyond {MOST_BYTES / 1e6:,.0f} is not read"
                )
            found = os.pread(descriptor, size - self.offset, self.offset)
        whole = found[: found.rfind(b"\n") + 1]  # the last line may still be written
        self.offset += len(whole)
        self.curve.add([line for line in whole.splitlines() if line.strip()])
