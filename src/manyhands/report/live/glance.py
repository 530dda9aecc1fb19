"""Glance: how far a run is and how its loss fell, from a few bytes of metrics.jsonl.

A list of a thousand runs cannot parse a million lines: it looks at the last lines, and at some places in between for a
curve as large as a thumbnail.
"""

import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from manyhands.files import opened
from manyhands.report.live.values import number
from manyhands.runs.run_folder import records

PLACES, PIECE = 16, 256  # how many, and the bytes read at each: some three lines
TAIL = 2048  # the last lines, which are parsed
FAR_TAIL = 2**18  # where the last validation is looked for
LOSS = re.compile(rb'"loss":\s*(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*[,}]')  # to its end: half a number is another one


@dataclass(frozen=True)
class Glance:
    """What the list shows of a run's metrics."""

    step: float | None = None
    loss: float | None = None
    step_ms: float | None = None  # lately
    accuracy: float | None = None  # of the last validation
    spark: tuple[float, ...] = ()


NOTHING = Glance()


def glance(path: str, ended: bool) -> Glance:
    """Look at a file of any size; of a run that has ended well, run.json says the last figures."""
    with opened(path) as (descriptor, size):
        if size <= PLACES * PIECE:
            parts = _parts(_losses(os.pread(descriptor, size, 0)))
        else:
            places = ((size - PIECE) * at // (PLACES - 1) for at in range(PLACES))
            parts = [_losses(os.pread(descriptor, PIECE, place)) for place in places]
        end = b"" if ended else os.pread(descriptor, FAR_TAIL, max(0, size - FAR_TAIL))
    short = (float(f"{loss:.4g}") for part in parts if (loss := _mean(part)) is not None)
    spark = tuple(filter(math.isfinite, short))  # the largest numbers round up to infinity
    return Glance(spark=spark) if ended else _last(end, spark)


def _losses(piece: bytes) -> list[float]:
    return list(map(float, LOSS.findall(piece)))


def _parts(losses: list[float]) -> list[list[float]]:
    """All of them in at most PLACES parts of about the same length."""
    count = min(PLACES, len(losses))
    return [losses[len(losses) * at // count : len(losses) * (at + 1) // count] for at in range(count)]


def _mean(values: Sequence[float]) -> float | None:
    return number(sum(values) / len(values)) if values else None


def _last(end: bytes, spark: tuple[float, ...]) -> Glance:
    """The newest figures; half a line, at either end, is passed over."""
    last = list(records(end[-TAIL:].splitlines()))
    at = end.rfind(b'"val_accuracy"')
    validation = next(records([end[end.rfind(b"\n", 0, at) + 1 :].partition(b"\n")[0]]), {}) if at >= 0 else {}
    milliseconds = [ms for each in last if (ms := number(each.get("ms"))) is not None]
    return Glance(
        next((number(each["step"]) for each in reversed(last) if "step" in each), None),
        next((number(each["loss"]) for each in reversed(last) if "loss" in each), None),
        _mean(milliseconds),
        number(validation.get("val_accuracy")),
        spark,
    )
