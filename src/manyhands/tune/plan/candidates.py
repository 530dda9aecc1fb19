"""Candidates: the plans that a search on this machine predicts and benchmarks, always with some references."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from manyhands.config import Config
from manyhands.machine.machine import Machine
from manyhands.plan.axis import Axis
from manyhands.plan.plan import Plan, to_table
from manyhands.train.plan_constraints import resolve

BEST = 2  # plans of each number of ranks that are worth a trial beside the best of all
NEAR = 1.05  # of the best prediction: what is not slower than this may turn out faster
MOST_LAYOUTS = 4  # numbers of ranks that are tried where there are many cores
# PyTorch's defaults, on the CPU.
USUAL: dict[str, Any] = {
    "device": "cpu",
    "precision": "fp32",
    "layout": "contiguous",
    "kernels": "torch",
    "compile": "off",
    "capture": "off",
    "feed": "loader",
    "workers": 0,
}


@dataclass(frozen=True)
class Candidate:
    """A plan with all options bound; its predicted and its measured step in milliseconds, where known."""

    plan: Plan
    predicted_ms: float | None = None
    measured_ms: float | None = None
    error_ms: float | None = None  # of what was measured, one standard error
    failed: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.plan.label,
            "table": to_table(self.plan),
            "predicted_step_ms": self.predicted_ms,
            "measured_step_ms": self.measured_ms,
            "error_ms": self.error_ms,
            "failed": self.failed,
        }


def layouts(cores: int, batch: int) -> list[int]:
    """Numbers of ranks that share out the cores: one, all, and some between where there are many.

    >>> layouts(2, 256), layouts(16, 256), layouts(64, 256)
    ([1, 2], [1, 4, 8, 16], [1, 16, 32, 64])
    """
    whole = [number for number in range(1, cores + 1) if cores % number == 0 and number <= batch]
    return whole if len(whole) <= MOST_LAYOUTS else [whole[0], *whole[-(MOST_LAYOUTS - 1) :]]


def processes(auto: Plan, ranks: int, kind: str, machine: Machine, axes: tuple[Axis, ...] | None = None) -> list[Plan]:
    """The plans of so many ranks: what the user did not say, in every way that may be the fastest.

    `axes`: how the ranks share the work; by sample, where it is not told.
    """
    said = {name: value for name, value in auto.said().items() if name not in ("backend", "threads")}
    threads = max(machine.physical_cores // ranks, 1)  # ranks may share cores
    usual = (Axis("data", ranks),) if ranks > 1 else (Axis("serial"),)
    base = Plan(axes=axes or usual, threads=threads, **said).with_defaults(
        device="cpu", allocator="keep", kernels="own", compile="off", capture="off", feed="device", workers=0
    )
    if ranks > 1:
        base = base.with_defaults(backend=auto.backend)
    precisions = [base.precision] if base.precision else ["bf16", "fp32"]
    formats = ["channels_last", "contiguous"] if kind == "image" else ["contiguous"]
    layouts_ = [base.layout] if base.layout else formats
    return [replace(base, precision=precision, layout=layout) for precision in precisions for layout in layouts_]


def references(auto: Plan, config: Config, machine: Machine) -> list[Candidate]:
    """Plain PyTorch, and its DDP over all cores: a found plan that is not faster than these is not taken."""
    words = [Axis("plain")]
    if 1 < machine.physical_cores <= config.train.batch_size:
        words.append(Axis("ddp", machine.physical_cores))
    plans = [Plan(axes=(axis,)).with_defaults(**USUAL) for axis in words]
    return [Candidate(resolve(plan, config, machine)) for plan in plans]


def shortlist(found: Sequence[Candidate]) -> list[Candidate]:
    """Those worth a trial, from the best: of each number of ranks the best, and up to two that come near the best."""
    best = found[0].predicted_ms or 0.0
    near = [each for each in found if (each.predicted_ms or 0.0) <= NEAR * best][:BEST]
    kept: list[Candidate] = []
    for each in found:
        first = each.plan.axes not in [other.plan.axes for other in kept]
        if each in near or (first and (each.plan.world == 1 or (each.predicted_ms or 0.0) <= 1.5 * best)):
            kept.append(each)
    return kept
