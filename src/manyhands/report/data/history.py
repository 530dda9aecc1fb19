"""History: what a run's metrics say from its first step to its last."""

import json
import math
from dataclasses import dataclass

from manyhands.runs.run_folder import Run


@dataclass(frozen=True)
class Series:
    """One number of a run, each time that it was told; a value that is none is NaN."""

    values: tuple[float, ...]
    best_is: str = ""  # lowest | highest; empty where no value is better than another

    @property
    def first(self) -> float | None:
        return self.values[0] if self.values and math.isfinite(self.values[0]) else None

    @property
    def last(self) -> float | None:
        return self.values[-1] if self.values and math.isfinite(self.values[-1]) else None

    @property
    def best(self) -> float | None:
        finite = [value for value in self.values if math.isfinite(value)]
        if not finite or not self.best_is:
            return None
        return min(finite) if self.best_is == "lowest" else max(finite)


BEST = {"loss": "lowest", "lr": "", "val_accuracy": "highest", "averaged_val_accuracy": "highest", "ms": "lowest"}


def history(run: Run) -> dict[str, Series]:
    """Loss, learning rate, validation accuracies and milliseconds a step, as far as they are known."""
    values: dict[str, list[float]] = {key: [] for key in BEST}
    for record in run.metrics():
        for key, known in values.items():
            if key in record:
                known.append(_number(record[key]))
    return {key: Series(tuple(known), BEST[key]) for key, known in values.items() if known}


def losses(run: Run, most: int) -> list[float]:
    """At most so many losses, evenly spread: a list of a thousand runs cannot wait for a million lines to be read."""
    lines = [line for line in run.metric_lines() if b'"loss"' in line]
    return [_loss(line) for line in lines[:: max(1, math.ceil(len(lines) / most))]]


def _loss(line: bytes) -> float:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):  # cut off by a kill
        return math.nan
    return _number(record.get("loss")) if isinstance(record, dict) else math.nan


def _number(value: object) -> float:
    try:
        return float(value) if isinstance(value, int | float) else math.nan
    except OverflowError:  # a whole number with hundreds of digits
        return math.nan
