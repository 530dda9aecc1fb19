"""Async training: a training whose workers do not keep step, around the loop that trains in one process.

This process is the coordinator: it starts workers and servers, hands out the work, and alone writes.
"""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from manyhands.comm.launch.supervisor import ProcessSupervisor
from manyhands.comm.ranks.stopped import GRACE, ended_when_stopped
from manyhands.config import Config
from manyhands.data.feeds import Feed
from manyhands.engine.asynchronous.coordinator import Coordinator
from manyhands.engine.loop.checkpoint_folder import Position
from manyhands.engine.loop.loop import total_steps
from manyhands.engine.strategies.single_process import SingleProcess
from manyhands.errors import PlanError
from manyhands.machine.machine import Machine
from manyhands.optim.lr_schedule import factor
from manyhands.plan.plan import Plan
from manyhands.progress import say
from manyhands.runs import run_folder
from manyhands.train.async_worker import WORD
from manyhands.train.job import Job


@contextmanager
def conducted(
    run: run_folder.Run, config: Config, plan: Plan, job: Job, position: Position
) -> Iterator[tuple[Job, Coordinator]]:
    """The job with a step that others carry out; `plan` is in the run's record already."""
    axis, strategy, feed = plan.axes[0], job.context.strategy, job.context.feed
    assert isinstance(strategy, SingleProcess)
    if hasattr(job.context.model, "begin_epoch"):
        raise PlanError(
            f"model {config.model.name} learns a block at a time, which plan {plan.name} cannot: use serial"
        )
    total, word = total_steps(config.train.epochs, config.train.max_steps, feed.count), secrets.token_hex(16)
    coordinator = Coordinator(
        strategy,
        axis.degree,
        axis.servers,
        own=plan.consistency in ("sync", "stale") if axis.servers else False,
        word=word,
        count=feed.count,
        total=total,
        every=config.checkpoint.every_steps,
        rate=lambda step: job.lr * factor(config.optim, step, total),
        timeout=config.train.timeout,
    )
    left = config.train.restarts

    def ended(rank: int, why: str | None) -> None:
        nonlocal left
        if why is None or coordinator.ended or not coordinator.lost(rank, why, again=left > 0):
            return
        say(f"{why}; the others go on" + (", and it starts again" if left else ""))
        if left:
            left -= 1
            supervisor.start(rank)

    arguments = [str(run.folder), str(coordinator.listener.port)]
    try:
        with (
            ended_when_stopped(config.train.timeout + GRACE),
            ProcessSupervisor("manyhands.train.async_worker", arguments, plan.world, {WORD: word}, ended) as supervisor,
        ):
            coordinator.begin(position.step, position.epoch, position.batch)
            run.update(ranks=[coordinator.about[rank] for rank in sorted(coordinator.about)])
            torch.set_num_threads(Machine.from_json(run.record["machine"]).physical_cores)  # workers rest meanwhile
            yield replace(job, step=coordinator, context=replace(job.context, feed=Tickets(feed))), coordinator
    finally:
        coordinator.close()


class Tickets:
    """A feed of which only the number of batches, and of samples in each, counts: others have the samples."""

    def __init__(self, feed: Feed) -> None:
        self.feed = feed

    def __getattr__(self, name: str) -> Any:
        return getattr(self.feed, name)

    def __len__(self) -> int:
        return len(self.feed)

    def epoch(self, number: int, start: int = 0) -> Iterator[tuple[torch.Tensor, ...]]:
        for _ in range(start, self.feed.count(number)):
            yield (torch.empty(0),)
