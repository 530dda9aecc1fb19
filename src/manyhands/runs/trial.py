"""Trial: measure a plan by some real steps."""

import math
import statistics
import time
from dataclasses import dataclass

import torch

from manyhands.data.dataset import Dataset
from manyhands.engine.loop import slow_first_steps
from manyhands.errors import RunError
from manyhands.plan.plan import Plan
from manyhands.runs.config import Config
from manyhands.runs.job import assemble

MOST_STEPS = 12
ENOUGH_SECONDS = 0.6  # for one candidate, its first steps apart


@dataclass(frozen=True)
class Trial:
    """A plan and the time of a step under it."""

    plan: Plan
    step_ms: float
    first_ms: float  # the steps that compile, capture and warm up

    def to_json(self) -> dict[str, object]:
        return {"plan": str(self.plan), "step_ms": self.step_ms, "first_ms": self.first_ms}


def measure(config: Config, plan: Plan, dataset: Dataset) -> Trial:
    """Train a fresh model for a few steps and give the median; the caller's random state is left alone.

    A plan that runs out of memory or into an operation that it does not support counts as endless.
    """
    devices = [torch.cuda.current_device()] if plan.device == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        try:
            return _measure(config, plan, dataset)
        except (torch.OutOfMemoryError, RuntimeError) as error:
            if "out of memory" in str(error) or "not implemented" in str(error):
                return Trial(plan, math.inf, math.inf)
            raise RunError(f"plan {plan} failed in its trial: {str(error).splitlines()[0]}") from error


def _measure(config: Config, plan: Plan, dataset: Dataset) -> Trial:
    job = assemble(config, plan, dataset)
    warm = slow_first_steps(plan.compile == "on", plan.capture == "on") + 2
    batches = job.trainee.feed.epoch(0)
    full = [batch for _, batch in zip(range(warm + MOST_STEPS), batches, strict=False)]
    full = [batch for batch in full if len(batch[0]) == len(full[0][0])]

    def one(number: int) -> float:
        start = time.perf_counter()
        job.step(full[number % len(full)]).item()  # waits for the device
        return 1000 * (time.perf_counter() - start)

    first = sum(one(number) for number in range(warm))
    times: list[float] = []
    while len(times) < MOST_STEPS and (len(times) < 3 or sum(times) < 1000 * ENOUGH_SECONDS):
        times.append(one(warm + len(times)))
    return Trial(plan, statistics.median(times), first)
