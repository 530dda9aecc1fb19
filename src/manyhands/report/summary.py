"""Summary: what runs say together: a row a plan, the winner, and the sentence that tells it."""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from manyhands.runs.store import Run


@dataclass(frozen=True)
class Group:
    """The runs of one plan, and what the plan is called."""

    label: str
    runs: tuple[Run, ...]


@dataclass(frozen=True)
class Mean:
    """A mean over runs and its sample deviation (0 for one run)."""

    mean: float
    std: float
    n: int


@dataclass(frozen=True)
class Row:
    """One plan: its runs and their means; a measure that no run gave is None."""

    label: str
    runs: tuple[Run, ...]
    speed: Mean | None  # samples a second
    seconds: Mean | None  # of training
    accuracy: Mean | None  # on the test set
    speedup: float | None  # over the first row

    @property
    def finished(self) -> tuple[Run, ...]:
        return tuple(run for run in self.runs if run.result)

    @property
    def errors(self) -> tuple[str, ...]:
        """Why runs of this plan did not finish, each reason once."""
        ended = [run for run in self.runs if run.status in ("failed", "interrupted")]
        reasons = (str(run.record.get("error") or run.status) for run in ended)
        return tuple(dict.fromkeys(reasons))

    @property
    def name(self) -> str:
        """What it is called in a sentence."""
        return "plain PyTorch" if self.label == "plain" else self.label


def group(runs: Iterable[Run]) -> list[Group]:
    """Runs with the same plan together, in the order of their first run."""
    same: dict[str, list[Run]] = {}
    for run in runs:
        same.setdefault(run.plan, []).append(run)
    return [Group(_label(words, list(same)), tuple(members)) for words, members in same.items()]


def _label(words: str, others: Sequence[str]) -> str:
    """The axes of a plan, with the options that tell it from the others with the same axes."""

    def axes(plan: str) -> list[str]:
        return [word for word in plan.split(",") if "=" not in word]

    alike = [set(other.split(",")) for other in others if axes(other) == axes(words)]
    common = set.intersection(*alike)
    return ",".join([*axes(words), *(word for word in words.split(",") if "=" in word and word not in common)])


def rows(groups: Iterable[Group]) -> list[Row]:
    """A row a plan; the speed-up is over the first."""
    table: list[Row] = []
    for each in groups:
        results = [run.result for run in each.runs if run.result]
        speed = mean(result.get("samples_per_s") for result in results)
        base = table[0].speed if table else speed
        table.append(
            Row(
                each.label,
                each.runs,
                speed,
                mean(result["seconds"]["train"] for result in results),
                mean(result.get("test_accuracy") for result in results),
                speed.mean / base.mean if speed and base else None,
            )
        )
    return table


def mean(values: Iterable[float | None]) -> Mean | None:
    """The mean of the numbers among the values; None when there are none."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    if not known:
        return None
    return Mean(statistics.fmean(known), statistics.stdev(known) if len(known) > 1 else 0.0, len(known))


def within_noise(one: Mean, other: Mean) -> bool | None:
    """Whether two means differ by less than two standard errors; None when single runs cannot tell."""
    if min(one.n, other.n) < 2:
        return None
    error = math.hypot(one.std / math.sqrt(one.n), other.std / math.sqrt(other.n))
    return abs(one.mean - other.mean) < 2 * error


def winner(table: Sequence[Row]) -> Row | None:
    """The fastest plan; the first of those that are equal."""
    return max((row for row in table if row.speed), key=lambda row: row.speed.mean if row.speed else 0.0, default=None)


def fastest_run(table: Sequence[Row]) -> Run | None:
    """The fastest run whose layers were timed."""
    timed = [run for row in table for run in row.finished if run.record.get("layers")]
    return max(timed, key=lambda run: (run.result or {}).get("samples_per_s") or 0.0, default=None)


def finding(table: Sequence[Row]) -> str:
    """One plain sentence: what was found, also when it is no gain."""
    best = winner(table)
    if best is None or best.speed is None:
        return "No run finished, so there is nothing to compare."
    if len(table) == 1:
        return f"{best.name} trained {best.speed.mean:,.0f} samples a second{_reached(best)}."
    base = table[0]
    if base.speed is None:
        return f"{base.name} did not finish; {best.name} was the fastest of the others{_reached(best)}."
    if best is not base:
        return f"{best.name} trained {_versus(best, base, f'as fast as {base.name}')}."
    second = winner(table[1:])
    if second is None:
        return f"Only {base.name} finished, with {best.speed.mean:,.0f} samples a second{_reached(base)}."
    runner_up = second.name if len(table) == 2 else f"the next, {second.name},"
    return f"{base.name} was the fastest: {runner_up} trained {_versus(second, base, 'as fast')}."


def _versus(row: Row, base: Row, words: str) -> str:
    """How fast and how well, beside the first row."""
    assert row.speed
    assert base.speed
    doubt = ", a difference within noise," if within_noise(row.speed, base.speed) else ""
    accuracies = f" at {percent(row.accuracy)} against {percent(base.accuracy)} test accuracy" if row.accuracy else ""
    return f"{times(row.speed.mean / base.speed.mean)} {words}{doubt}{accuracies}"


def _reached(row: Row) -> str:
    return f" and reached {percent(row.accuracy)} test accuracy" if row.accuracy else ""


def times(ratio: float | None) -> str:
    """A ratio with as many digits as it bears: 12x, 3.1x, 0.92x, 1.03x."""
    if ratio is None or not math.isfinite(ratio):
        return "–"
    digits = 0 if ratio >= 10 else 1 if ratio >= 1.5 else 2
    return f"{ratio:.{digits}f}x"


def percent(value: Mean | None, digits: int = 1) -> str:
    return "–" if value is None else f"{100 * value.mean:.{digits}f} %"


def number(value: float | None, digits: int = 0) -> str:
    """A number for people; what is none, endless or unknown is a dash."""
    return "–" if value is None or not math.isfinite(value) else f"{value:,.{digits}f}"


def spread(value: Mean | None, digits: int = 0, scale: float = 1.0) -> str:
    """A mean with its deviation, where more than one run gave it."""
    if value is None:
        return "–"
    deviation = f" ± {number(scale * value.std, digits)}" if value.n > 1 else ""
    return number(scale * value.mean, digits) + deviation


def costly(layers: Sequence[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """The dearest layers in the model's order, the rest summed up as one."""
    if len(layers) <= most:
        return list(layers)
    cost = [each["forward_ms"] + each["backward_ms"] for each in layers]
    kept = sorted(range(len(layers)), key=lambda at: -cost[at])[: most - 1]
    rest = [each for at, each in enumerate(layers) if at not in kept]
    return [*(layers[at] for at in sorted(kept)), total(rest, f"{len(rest)} others")]


def total(layers: Sequence[dict[str, Any]], name: str) -> dict[str, Any]:
    """The sum of layers, as if they were one."""
    sums = {key: sum(each[key] for each in layers) for key in ("parameters", "forward_ms", "backward_ms")}
    return {"name": name, "kind": "", **sums}


def ratio(layer: dict[str, Any]) -> float | None:
    """How much dearer backward is than forward."""
    return layer["backward_ms"] / layer["forward_ms"] if layer["forward_ms"] else None
