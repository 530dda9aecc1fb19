"""Derived metrics: what a study tells of its cells beside time and accuracy, by name, for `columns` in a recipe."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from manyhands.plan.spec import parse
from manyhands.runs.run_folder import Run
from manyhands.stats import mean_and_std
from manyhands.studies.grid import LINE, is_plan

Row = dict[str, Any]
Column = Callable[[Row, Sequence[Row]], Any]  # of a row, among all


def gain(row: Row, rows: Sequence[Row]) -> float | None:
    """The slowest time over this time."""
    times = [each["train_seconds"]["mean"] for each in rows if each["train_seconds"]]
    return max(times) / row["train_seconds"]["mean"] if row["train_seconds"] else None


def time_beside_base(row: Row, rows: Sequence[Row]) -> float | None:
    """Training seconds over those of the first row."""
    both = (row["train_seconds"], rows[0]["train_seconds"])
    return both[0]["mean"] / both[1]["mean"] if all(both) else None


def points_beside_base(row: Row, rows: Sequence[Row]) -> float | None:
    """Percentage points of accuracy over the first row."""
    both = (row["test_accuracy"], rows[0]["test_accuracy"])
    return 100 * (both[0]["mean"] - both[1]["mean"]) if all(both) else None


def ranks(row: Row) -> int:
    """How many ranks a row's plan has."""
    return parse(str(row["bound"] or row["cell"]["plan"])).world


def line(row: Row) -> str:
    """The curve to which a row belongs: what is varied beside the plan."""
    cell: Mapping[str, Any] = row["cell"]
    if LINE in cell:
        return str(cell[LINE])
    return ", ".join(f"{key.partition('.')[2]} {value}" for key, value in cell.items() if not is_plan(key))


def scaled(row: Row, rows: Sequence[Row]) -> float | None:
    """Samples a second over those of the fewest ranks on the same line."""
    alike = [each for each in rows if line(each) == line(row) and each["samples_per_s"]]
    if not row["samples_per_s"]:
        return None
    return float(row["samples_per_s"]["mean"] / min(alike, key=ranks)["samples_per_s"]["mean"])


def efficiency(row: Row, rows: Sequence[Row]) -> float | None:
    """The share of the ideal speed-up that is reached."""
    speedup = scaled(row, rows)
    fewest = min(ranks(each) for each in rows if line(each) == line(row) and each["samples_per_s"])
    return speedup * fewest / ranks(row) if speedup else None


def megabytes_sent(row: Row, rows: Sequence[Row]) -> float | None:
    return row["sent_bytes_per_step"] / 1e6 if row["sent_bytes_per_step"] else None


def fewer_bytes(row: Row, rows: Sequence[Row]) -> float | None:
    return float(row["compression_ratio"]) if row["compression_ratio"] else None


def backward(row: Row, rows: Sequence[Row]) -> dict[str, float] | None:
    """Backward over forward milliseconds, all layers together, by run."""
    return row["backward"]  # type: ignore[no-any-return]


def over(key: str, value: str) -> Column:
    """Samples a second over those with another value of an axis, all else being the same."""

    def of(row: Row, rows: Sequence[Row]) -> float | None:
        base = _with(row, rows, key, value)
        both = [each["samples_per_s"] for each in (row, base) if each and each["samples_per_s"]]
        return float(both[0]["mean"] / both[1]["mean"]) if len(both) > 1 else None

    return of


def points_over(key: str, value: str) -> Column:
    """Percentage points of accuracy over the row with another value of an axis, all else being the same."""

    def of(row: Row, rows: Sequence[Row]) -> dict[str, float] | None:
        base = _with(row, rows, key, value)
        both = [each["test_accuracy"] for each in (row, base) if each and each["test_accuracy"]]
        if len(both) < 2 or row is base:
            return None
        one, other = both
        return {"mean": 100 * (one["mean"] - other["mean"]), "std": 100 * math.hypot(one["std"], other["std"])}

    return of


def staleness(which: str) -> Column:
    """Updates that gradients were late by."""

    def of(row: Row, rows: Sequence[Row]) -> float | None:
        told = row.get("staleness")
        return float(told[which]) if told else None

    return of


def full_beside(row: Row, rows: Sequence[Row]) -> float | None:
    """Seconds of the search with the full simulation over these, all else being the same."""
    base = _with(row, rows, "simulator", "full")
    return float(base["search_seconds"]["mean"] / row["search_seconds"]["mean"]) if base else None


def _with(row: Row, rows: Sequence[Row], key: str, value: str) -> Row | None:
    """The row whose cell differs in one axis alone."""
    return next((each for each in rows if each["cell"] == {**row["cell"], key: value}), None)


def from_row(key: str, scale: float = 1.0) -> Column:
    """What a row has under a key of its own."""

    def of(row: Row, rows: Sequence[Row]) -> Any:
        value = row.get(key)
        return scale * value if isinstance(value, float) else value

    return of


COLUMNS: dict[str, Column] = {
    "slowest time / this": gain,
    "time / base": time_beside_base,
    "points over base": points_beside_base,
    "speed-up": scaled,
    "efficiency": efficiency,
    "MB sent a step": megabytes_sent,
    "times fewer bytes": fewer_bytes,
    "backward / forward": backward,
    "step ms": from_row("step_ms"),
    "over serial": over("plan", "serial"),
    "over data:1": over("plan", "data:1"),
    "over whole": over("plan.backward", "whole"),
    "over 1f1b": over("plan.schedule", "1f1b"),
    "over data:4": over("plan", "data:4"),
    "points over data:4": points_over("plan", "data:4"),
    "s an epoch": from_row("epoch_seconds"),
    "s to 98 %": from_row("target_seconds"),
    "staleness": staleness("mean"),
    "most stale": staleness("max"),
    "idle %": from_row("idle_fraction", 100),
    "exposed ms": from_row("exposed_comm_ms"),
    "found": from_row("found"),
    "seconds": from_row("search_seconds"),
    "proposals": from_row("proposals"),
    "full / this": full_beside,
}


def backward_of(runs: Sequence[Run]) -> dict[str, float] | None:
    """How much dearer than forward backward is, as the layers of each run were timed."""
    ratios = []
    for run in runs:
        layers = run.record.get("layers") or []
        forward, back = (sum(layer[key] for layer in layers) for key in ("forward_ms", "backward_ms"))
        if forward:
            ratios.append(back / forward)
    return mean_and_std(ratios)


def derive(rows: Sequence[Row], wanted: Sequence[str]) -> None:
    """Give every row its `extra` columns."""
    for row in rows:
        row["extra"] = {name: COLUMNS[name](row, rows) for name in wanted}
