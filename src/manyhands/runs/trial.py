"""Trial: measure plans by some real steps of each."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from manyhands.data.dataset import Dataset
from manyhands.engine.loop import slow_first_steps
from manyhands.errors import RunError
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

    def to_json(self) -> dict[str, object]:
        return {"plan": str(self.plan), "step_ms": self.step_ms, "first_ms": self.first_ms}


def measure(config: Config, plans: Sequence[Plan], dataset: Dataset) -> list[Trial]:
    """Train a fresh model under each plan for a few steps, in turn, so that noise falls on all alike.

    A plan that runs out of memory or into an operation that it does not support counts as endless. The
    caller's random state is left alone.
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
        return [Trial(contest.plan, min(contest.times), contest.first_ms) for contest in contests]


class _Contest:
    """One plan's model, warm, and the times of its steps so far."""

    def __init__(self, config: Config, plan: Plan, dataset: Dataset) -> None:
        self.plan, self.times = plan, [math.inf]
        self.failed = False
        job = assemble(config, plan, dataset)
        self.step = job.step
        self.batch = next(iter(job.trainee.feed.epoch(0)))
        warm = slow_first_steps(plan.compile == "on", plan.capture == "on") + 2
        self.first_ms = sum(self._clocked() for _ in range(warm))

    def one(self) -> None:
        self.times.append(self._clocked())

    def _clocked(self) -> float:
        if self.failed:
            return math.inf
        start = time.perf_counter()
        try:
            self.step(self.batch).item()  # waits for the device
        except RuntimeError as error:
            if "out of memory" not in str(error) and "not implemented" not in str(error):
                raise RunError(f"plan {self.plan} failed in its trial: {str(error).splitlines()[0]}") from error
            self.failed = True
            return math.inf
        return 1000 * (time.perf_counter() - start)
