"""Trial: measure plans by some real steps of each."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from manyhands.data.dataset import Dataset, Split
from manyhands.engine.loop import slow_first_steps
from manyhands.plan.plan import Plan
from manyhands.runs.config import Config
from manyhands.runs.job import assemble

LEAST_ROUNDS, MOST_ROUNDS = 3, 12
ENOUGH_SECONDS = 1.5  # for all rounds together


@dataclass(frozen=True)
class Trial:
    """A plan and the time of a step under it."""

    plan: Plan
    step_ms: float  # the fastest of the rounds: what else runs on the machine only ever adds
    first_ms: float  # the steps that compile, capture and warm up
    error: str | None = None  # why it does not run

    def to_json(self) -> dict[str, object]:
        known = math.isfinite(self.step_ms)
        return {
            "plan": str(self.plan),
            "step_ms": self.step_ms if known else None,
            "first_ms": self.first_ms if known else None,
            "error": self.error,
        }


def measure(config: Config, plans: Sequence[Plan], dataset: Dataset) -> list[Trial]:
    """Train a fresh model under each plan for a few steps, in turn, so that noise falls on all alike.

    A plan under which the model does not run (out of memory, an operation that it does not support) counts as
    endless. The caller's random state is left alone.
    """
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices=devices):
        contests = [_Contest(config, plan, dataset) for plan in plans]
        start = time.perf_counter()
        for number in range(MOST_ROUNDS):
            if number >= LEAST_ROUNDS and time.perf_counter() - start > ENOUGH_SECONDS:
                break
            for contest in contests:
                contest.one()
    return [
        Trial(contest.plan, min(contest.times), contest.first_ms, _first_line(contest.error) if contest.error else None)
        for contest in contests
    ]


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"


class _Contest:
    """One plan's model, warm, and the times of its steps so far."""

    def __init__(self, config: Config, plan: Plan, dataset: Dataset) -> None:
        self.plan, self.times = plan, [math.inf]
        self.error: Exception | None = None
        try:
            job = assemble(config, plan, _first_batch(dataset, config.train.batch_size))
            self.step = job.step
            self.batch = next(iter(job.trainee.feed.epoch(0)))
        except torch.OutOfMemoryError as error:
            self.error = error
        warm = slow_first_steps(plan.compile == "on", plan.capture == "on") + 2
        self.first_ms = sum(self._clocked() for _ in range(warm))

    def one(self) -> None:
        self.times.append(self._clocked())

    def _clocked(self) -> float:
        if self.error:
            return math.inf
        start = time.perf_counter()
        try:
            self.step(self.batch).item()  # waits for the device
        except Exception as error:  # whatever the user's model raises under this plan
            self.error = error
            return math.inf
        return 1000 * (time.perf_counter() - start)


def _first_batch(dataset: Dataset, size: int) -> Dataset:
    """Enough of a data set for a trial: two candidates must not hold two copies of all of it."""

    def cut(split: Split) -> Split:
        return replace(split, index=split.index[:size])

    return replace(dataset, train=cut(dataset.train), validation=cut(dataset.validation), test=cut(dataset.test))
