"""Layers: what each layer of a model costs in a step, forward and backward."""

from collections.abc import Sequence
from typing import Any

from manyhands.report.data.summary import Row
from manyhands.runs.run_folder import Run

Layer = dict[str, Any]


def fastest_run(table: Sequence[Row]) -> Run | None:
    """The fastest run whose layers were timed."""
    timed = [run for row in table for run in row.finished if run.record.get("layers")]
    return max(timed, key=lambda run: (run.result or {}).get("samples_per_s") or 0.0, default=None)


def costly(layers: Sequence[Layer], most: int) -> list[Layer]:
    """The dearest layers in the model's order, the rest summed up as one."""
    if len(layers) <= most:
        return list(layers)
    cost = [each["forward_ms"] + each["backward_ms"] for each in layers]
    kept = sorted(range(len(layers)), key=lambda at: -cost[at])[: most - 1]
    rest = [each for at, each in enumerate(layers) if at not in kept]
    return [*(layers[at] for at in sorted(kept)), total(rest, f"{len(rest)} others")]


def total(layers: Sequence[Layer], name: str) -> Layer:
    """The sum of layers, as if they were one."""
    sums = {key: sum(each[key] for each in layers) for key in ("parameters", "forward_ms", "backward_ms")}
    return {"name": name, "kind": "", **sums}


def ratio(layer: Layer) -> float | None:
    """How much dearer backward is than forward."""
    return layer["backward_ms"] / layer["forward_ms"] if layer["forward_ms"] else None
