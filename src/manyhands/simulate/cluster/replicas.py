"""Replicas: weights and optimizer of each worker; the model's parameters point at those of whoever learns.

local     all are averaged now and then (mean), or
          centre c, workers x:  d = rate · (x − c),  x −= d,  c += Σ d   (elastic)
gossip    two meet: each goes to the middle, the one that was met at its next step
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from manyhands.compat import foreach_add_, foreach_copy_, foreach_div_, foreach_mul_, foreach_sub, foreach_sub_
from manyhands.optim import factory
from manyhands.plan.consistency import elastic_rate
from manyhands.simulate.cluster.trainer import Learner
from manyhands.simulate.worker_processes import Act, Average, Meet, Step, Workers


class Own:
    """What one worker has: copies of the parameters that learn, of the buffers, and an optimizer."""

    def __init__(self, learner: "Apart") -> None:
        self.parameters = [nn.Parameter(each.detach().clone()) for each in learner.parameters]
        self.tensors = [*(each.data for each in self.parameters), *(each.clone() for each in learner.buffers)]
        self.optimizer = factory.build(
            self.parameters,
            learner.config.optim,
            learner.job.lr,
            best=True,
            device=learner.job.context.device.type,
        )
        self.owed: list[Tensor] | None = None  # by how much those who met it draw it, at its next step


class Apart(Learner):
    """Workers that learn by themselves."""

    def __init__(self, *told: Any) -> None:
        super().__init__(*told)
        self.buffers = [each for each in self.model.buffers() if each.is_floating_point()]
        self.own = [Own(self) for _ in range(self.workers)]

    def learn(self, act: Step, whole: float) -> None:
        """A step of a worker, its part weighed as its share of so many samples."""
        own = self.own[act.worker]
        self._show(own.tensors)
        found = self.gradients(self.part(act.batch, act.part), whole)
        for parameter, gradient in zip(own.parameters, found, strict=True):
            parameter.grad = gradient
        if self.config.train.clip is not None:
            nn.utils.clip_grad_norm_(own.parameters, self.config.train.clip, foreach=True)
        factory.set_lr(own.optimizer, self.rate(self.first + act.batch))
        own.optimizer.step()
        own.optimizer.zero_grad(set_to_none=True)

    def _show(self, tensors: Sequence[Tensor]) -> None:
        """Let the model have these, without a copy."""
        for each, tensor in zip([*self.parameters, *self.buffers], tensors, strict=True):
            each.data = tensor

    def mean(self) -> list[Tensor]:
        """Of all workers' tensors."""
        total = [each.clone() for each in self.own[0].tensors]
        for own in self.own[1:]:
            foreach_add_(total, own.tensors)
        foreach_div_(total, self.workers)
        return total

    def gather(self) -> None:
        self._show(self.mean())


class LocalSGD(Apart):
    """Averaged every so many steps; after each in the first ones."""

    def __init__(self, *told: Any, every: int, after: int, elastic: bool) -> None:
        super().__init__(*told)
        self.every, self.after = every, after
        first = self.own[0].tensors
        self.centre = [each.clone() for each in first] if elastic else None

    def acts(self, crew: Workers) -> Iterator[Act]:
        return crew.local(self.every, self.after, self.first)

    def obey(self, act: Act) -> None:
        if isinstance(act, Step):
            # As many times its share as there are workers: so the plain mean counts every sample alike.
            self.learn(act, len(self.rows[act.batch]) / self.workers)
        elif isinstance(act, Average):
            if self.centre is None:
                self._average()
            else:
                self._draw(self.centre)

    def _average(self) -> None:
        mean = self.mean()
        for own in self.own:
            foreach_copy_(own.tensors, mean)

    def _draw(self, centre: list[Tensor]) -> None:
        """The workers and the centre draw each other."""
        before, rate = [each.clone() for each in centre], elastic_rate(self.workers)
        for own in self.own:
            drawn = foreach_sub(own.tensors, before)
            foreach_mul_(drawn, rate)
            foreach_sub_(own.tensors, drawn)
            foreach_add_(centre, drawn)

    def gather(self) -> None:
        if self.centre is None:
            super().gather()
        else:
            self._show(self.centre)


class Gossip(Apart):
    """Two meet after each step."""

    def __init__(self, *told: Any, topology: str) -> None:
        super().__init__(*told)
        self.topology = topology
        self.spare: list[list[Tensor]] = []  # memory that is used again: new pages would take longer than the sums

    def acts(self, crew: Workers) -> Iterator[Act]:
        return crew.gossip(self.topology, self.config.train.seed)

    def obey(self, act: Act) -> None:
        if isinstance(act, Step):
            self.learn(act, len(self.part(act.batch, act.part)))
            self._settle(self.own[act.worker])
        elif isinstance(act, Meet):
            self._meet(self.own[act.worker], self.own[act.other])

    def gather(self) -> None:
        for own in self.own:
            self._settle(own)
        super().gather()

    def _meet(self, one: Own, other: Own) -> None:
        """The other one is where it will be at its next step: that is what it tells."""
        owed, before = other.owed, other.owed is not None
        if owed is None:
            owed = other.owed = self.spare.pop() if self.spare else [torch.empty_like(each) for each in one.tensors]
        for mine, theirs, drawn in zip(one.tensors, other.tensors, owed, strict=True):
            mine.lerp_(theirs, 0.5)
            if before:
                mine.add_(drawn, alpha=0.5)
            torch.sub(mine, theirs, out=drawn)

    def _settle(self, own: Own) -> None:
        if own.owed is not None:
            foreach_add_(own.tensors, own.owed)
            self.spare.append(own.owed)
            own.owed = None
