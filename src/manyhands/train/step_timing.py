"""Step timing: measure plans by some real steps of each."""

import math
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from itertools import count, islice
from typing import Any

import numpy as np
import torch

from manyhands.comm.ranks.rank_group import Team
from manyhands.config import Config
from manyhands.data.dataset import Dataset, Split
from manyhands.data.feeds import Feed
from manyhands.data.sampler import Batch, Share
from manyhands.engine.loop.context import Step
from manyhands.engine.loop.loop import slow_first_steps
from manyhands.plan.plan import Plan
from manyhands.train.job import Job, assemble, make_feed

LEAST_ROUNDS, MOST_ROUNDS = 3, 12
ENOUGH_SECONDS = 1.5  # for all rounds together

FED_ROUNDS = 3
LEAST_FED, MOST_FED = 3, 60  # steps of a round
FED_SECONDS = 0.4  # of a round's steps; the same again for those before, that use up what was loaded ahead
ENOUGH_FED_SECONDS = 6.0
LOADED_AHEAD = 2  # batches by each of torch's loader processes


@dataclass(frozen=True)
class Trial:
    """A plan and the time of a step under it."""

    plan: Plan
    step_ms: float  # the fastest of the rounds: what else runs on the machine only ever adds
    first_ms: float  # the steps that compile, capture and warm up; fed: the first of an epoch, which starts loaders
    error: str | None = None  # why it does not run
    fed: bool = False  # whether the time in which a batch is loaded is counted

    def to_json(self) -> dict[str, object]:
        known = math.isfinite(self.step_ms)
        return {
            "plan": str(self.plan),
            "step_ms": self.step_ms if known else None,
            "first_ms": self.first_ms if known else None,
            "error": self.error,
            "fed": self.fed,
        }


def measure(config: Config, plans: Sequence[Plan], dataset: Dataset) -> list[Trial]:
    """Train a fresh model under each plan for a few steps, in turn, so that noise falls on all alike.

    A plan under which the model does not run (out of memory, an operation that it does not support) counts as
    endless. The caller's random state is left alone.
    """
    with _own_random_state():
        contests = [_Contest(config, plan, dataset) for plan in plans]
        start = time.perf_counter()
        for number in range(MOST_ROUNDS):
            if number >= LEAST_ROUNDS and time.perf_counter() - start > ENOUGH_SECONDS:
                break
            for benchmark in contests:
                benchmark.one()
    return [
        Trial(
            benchmark.plan,
            min(benchmark.times),
            benchmark.first_ms,
            _first_line(benchmark.error) if benchmark.error else None,
        )
        for benchmark in contests
    ]


def _own_random_state() -> AbstractContextManager[object]:
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    state: AbstractContextManager[object] = torch.random.fork_rng(devices=devices)
    return state


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
            self.batch = next(iter(job.context.feed.epoch(0)))
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


def measure_fed(config: Config, plans: Sequence[Plan], dataset: Dataset) -> list[Trial]:
    """Train one model under plans that differ in their loaders alone, in turn, with the time that loading takes.

    Every round starts its loader processes anew: those of another plan, filling their queues, would be in the way.
    """
    batch, most = config.train.batch_size, max(plan.workers or 0 for plan in plans)
    rows = _spread(dataset.train, batch * (1 + max(LOADED_AHEAD * most, 1) + MOST_FED))
    with _own_random_state(), _share_of_cores(plans[0]):
        job = assemble(config, plans[0], replace(dataset, train=rows))
        contests = [
            _Fed(plan, job.step, make_feed(config, plan, dataset.schema, Team(), rows, config.train.seed))
            for plan in plans
        ]
        contests[0].warm_up()
        start = time.perf_counter()
        for number in range(FED_ROUNDS):
            if number and time.perf_counter() - start > ENOUGH_FED_SECONDS:
                break
            for benchmark in contests:
                benchmark.one(number)
    return [benchmark.trial() for benchmark in contests]


@contextmanager
def _share_of_cores(plan: Plan) -> Iterator[None]:
    """Unpinned ranks will compete for the cores; while one tries alone, it gets as many as fall to it."""
    allowed = sorted(os.sched_getaffinity(0))
    if plan.cores is None and plan.world > 1:
        os.sched_setaffinity(0, allowed[: max(len(allowed) // plan.world, 1)])
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


@dataclass
class _Fed:
    """One plan's feed, the step that all share, and the times of its rounds so far."""

    plan: Plan
    step: Step
    feed: Feed
    first_ms: float = math.inf
    step_ms: float = math.inf
    error: str | None = None

    def warm_up(self) -> None:
        batch = next(iter(self.feed.epoch(0)))
        for _ in range(slow_first_steps(False, self.plan.capture == "on") + 2):
            self.step(batch)

    def one(self, number: int) -> None:
        if self.error:
            return
        batches, workers = self.feed.epoch(number), self.plan.workers or 0
        try:
            first = self._clocked(batches, 1, 1)
            self._clocked(batches, 1, max(LOADED_AHEAD * workers, 1))
            # Processes that began together deliver together: a few steps may fall between two deliveries.
            later = self._clocked(batches, max(LEAST_FED, min(workers, MOST_FED)), MOST_FED)
        except Exception as error:  # of the model, or of a loader process (no room in /dev/shm)
            self.error = _first_line(error)
        else:
            self.first_ms, self.step_ms = min(self.first_ms, first), min(self.step_ms, later)

    def _clocked(self, batches: Iterator[Batch], least: int, most: int) -> float:
        """Milliseconds a step: at least and at most so many, until the time is up."""
        start, count = time.perf_counter(), 0
        for batch in islice(batches, most):
            loss, count = self.step(batch), count + 1
            if count >= least and time.perf_counter() - start > FED_SECONDS:
                break
        loss.item()  # waits for the device
        return 1000 * (time.perf_counter() - start) / count

    def trial(self) -> Trial:
        if self.error:
            return Trial(self.plan, math.inf, 0.0, self.error, fed=True)
        return Trial(self.plan, self.step_ms, self.first_ms, fed=True)


def _spread(split: Split, count: int) -> Split:
    """So many rows from all over a split, each as often as need be: real ones to load, in an epoch of known length."""
    return replace(split, index=split.index[np.linspace(0, len(split) - 1, count).astype(np.int64)])


def batches_with_shares(job: Job, epochs: int) -> Iterator[tuple[Batch, Share]]:
    """Each batch with this rank's share of it."""
    feed = job.context.feed
    for epoch in range(epochs):
        if begin := getattr(job.context.model, "begin_epoch", None):
            begin(epoch, epochs)
        for number, batch in enumerate(feed.epoch(epoch)):
            yield batch, feed.share(number, epoch)


class Steps:
    """Full batches of the training set, epoch after epoch."""

    def __init__(self, job: Any) -> None:
        self.job, self.epoch, self.number = job, 0, 0
        self.batches = job.context.feed.epoch(0)

    def take(self, count: int) -> None:
        loss = None
        for _ in range(count):
            loss = self.job.step(*self._next())
        if loss is not None:
            loss.item()  # waits for the device

    def _next(self) -> tuple[Any, Any]:
        feed = self.job.context.feed
        whole = len(feed) if feed.share(len(feed) - 1).whole == feed.share(0).whole else max(len(feed) - 1, 1)
        if self.number >= whole:
            self.epoch, self.number = self.epoch + 1, 0
            self.batches = feed.epoch(self.epoch)
        share = feed.share(self.number)
        self.number += 1
        return next(self.batches), share


def full_batches(feed: Feed, samples: int) -> Iterator[Batch]:
    """Batches of so many samples, epoch after epoch."""
    for epoch in count():
        for batch in feed.epoch(epoch):
            if len(batch[0]) == samples:
                yield batch
