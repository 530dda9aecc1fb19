"""Throughput: batch sizes, each measured once, in a fresh process that may run out of memory."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from manyhands.config import Config, with_values
from manyhands.plan.plan import Plan, from_table
from manyhands.tune.child_process import ask

LONGEST_MS = 20_000.0  # of a step: a batch for which it would take longer is not tried


@dataclass(frozen=True)
class Speed:
    """Steps of one batch size, or why there are none."""

    size: int
    samples_per_s: float | None = None
    step_ms: float | None = None
    memory_mb: float | None = None
    failed: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "batch_size": self.size,
            "samples_per_s": self.samples_per_s,
            "step_ms": self.step_ms,
            "memory_mb": self.memory_mb,
            "failed": self.failed,
        }


class Speeds:
    """What has been measured so far. The first size binds the plan, so that all are compared like for like."""

    def __init__(self, config: Config, plan: Plan, told: Callable[[Speed], None] = lambda speed: None) -> None:
        self.config, self.plan, self.told = config, plan, told
        self.rows: dict[int, Speed] = {}
        self.samples = self.validation = 0  # of the data
        self.rate = 0.0  # the model's own

    def at(self, size: int) -> Speed:
        """The speed at a batch size; where the very first does not run, nothing does, and its error is raised."""
        if size not in self.rows:
            answer = ask("throughput", with_values(self.config, {"train.batch_size": size}), self.plan)
            if not self.rows:
                self._begin(answer.known())
            if answer.value is None:
                self.rows[size] = Speed(size, failed=answer.error)
            else:
                self.rows[size] = Speed(
                    size, answer.value["samples_per_s"], answer.value["step_ms"], answer.value["memory_mb"]
                )
            self.told(self.rows[size])
        return self.rows[size]

    def _begin(self, first: dict[str, Any]) -> None:
        self.plan = from_table(first["plan"], "answer.json")
        self.samples, self.validation, self.rate = first["samples"], first["validation"], first["lr"]

    def fits(self, size: int) -> bool:
        """Whether a batch runs; one that would take too long for a step counts as too large."""
        if size not in self.rows and (why := self._too_long(size)) is not None:
            self.rows[size] = Speed(size, failed=why)
            self.told(self.rows[size])
        return self.at(size).failed is None

    def _too_long(self, size: int) -> str | None:
        """Told from the largest size that ran."""
        last = max((row for row in self.rows.values() if row.step_ms), key=lambda row: row.size)
        assert last.step_ms is not None
        expected = last.step_ms * size / last.size
        return f"a step would take {expected / 1000:.0f} s: not tried" if expected > LONGEST_MS else None

    def throughputs(self) -> dict[int, float]:
        """Samples a second of the sizes that ran."""
        return {size: row.samples_per_s for size, row in sorted(self.rows.items()) if row.samples_per_s is not None}
