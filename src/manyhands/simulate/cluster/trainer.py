"""Trainer: a model that learns from batches in as many parts as there are workers, with real gradients.

A gradient is computed at the moment whose weights it takes, so that no older weights need to be kept.
"""

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from manyhands.config import Config
from manyhands.data.sampler import Batches, part_of
from manyhands.engine.loop.evaluate import Score, evaluate
from manyhands.errors import Diverged
from manyhands.optim.lr_schedule import factor
from manyhands.simulate.worker_processes import Act, Workers
from manyhands.train.job import Job

GradientList = list[Tensor | None]  # of the parameters that learn; none of one that was not used
Rows = NDArray[np.int64]


class Learner(ABC):
    """What does a crew's acts with real weights."""

    def __init__(self, config: Config, job: Job, batches: Batches, workers: int, total: int) -> None:
        """`total`: steps of the whole training, along which the rate goes."""
        self.config, self.job, self.batches, self.workers, self.total = config, job, batches, workers, total
        self.model = job.context.model
        self.parameters = [each for each in self.model.parameters() if each.requires_grad]
        self.staleness: Counter[int] = Counter()
        self.first = 0  # step of the epoch's first batch
        self.rows: list[Rows] = []
        self.losses: list[float] = []  # of an epoch's parts, each times its samples
        self.samples = 0

    @property
    def length(self) -> int:
        """About how many samples it will learn from."""
        return min(self.batches.length * self.config.train.epochs, self.total * max(self.batches.sizes))

    @abstractmethod
    def acts(self, crew: Workers) -> Iterator[Act]:
        """What the workers do in an epoch."""

    @abstractmethod
    def obey(self, act: Act) -> None:
        """Do what happens at a moment."""

    def gather(self) -> None:  # noqa: B027, who has one set of weights has nothing to gather
        """Let the model have the weights that are evaluated."""

    def begin(self, epoch: int, first: int) -> list[list[int]]:
        """Begin an epoch; the samples of every part of every batch."""
        if begin := getattr(self.model, "begin_epoch", None):
            begin(epoch, self.config.train.epochs)
        self.model.train()
        self.first, self.losses, self.samples = first, [], 0
        self.rows = list(self.batches.epoch(epoch))[: self.total - first]
        return [[len(self.part(batch, part)) for part in range(self.workers)] for batch in range(len(self.rows))]

    def part(self, batch: int, part: int) -> Rows:
        return part_of(self.rows[batch], part, self.workers)

    def rate(self, step: int) -> float:
        return self.job.lr * factor(self.config.optim, step, self.total)

    def gradients(self, rows: Rows, whole: float) -> GradientList:
        """Of the mean loss over some samples, weighed as their share of so many; of none, as in the engine, zeros."""
        context = self.job.context
        if not len(rows):
            return [torch.zeros_like(each) for each in self.parameters]
        loss = context.losses((torch.from_numpy(rows).to(context.device),))
        (loss if len(rows) == whole else loss * (len(rows) / whole)).backward()  # type: ignore[no-untyped-call]
        value = loss.item()
        if not math.isfinite(value):
            raise Diverged(f"the loss is {value}: lower the learning rate (optim.lr) or set train.clip=1")
        self.losses.append(value * len(rows))
        self.samples += len(rows)
        found: GradientList = [each.grad for each in self.parameters]
        for each in self.parameters:
            each.grad = None
        return found

    @property
    def train_loss(self) -> float:
        return math.fsum(self.losses) / self.samples

    def score(self, *, tested: bool) -> Score | None:
        """Of the validation part, where there is one, or of the test part."""
        feed = self.job.test if tested else self.job.validation
        if feed is None:
            return None
        self.gather()
        return evaluate(self.job.context, feed)
