"""Shared weights: one set of weights for all workers, as servers have it, or replicas that are the same."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from manyhands.compat import BatchNorm
from manyhands.optim.factory import set_lr
from manyhands.plan.consistency import late_factor
from manyhands.simulate.cluster.trainer import GradientList, Learner
from manyhands.simulate.worker_processes import Act, Gradient, Push, Update, Workers


@dataclass
class Sum:
    """The gradients of a batch's parts, added up in the order of the parts in whatever order they come."""

    total: GradientList = field(default_factory=list)
    added: int = 0
    waiting: dict[int, GradientList] = field(default_factory=dict)

    def add(self, part: int, gradients: GradientList) -> None:
        self.waiting[part] = gradients
        while self.added in self.waiting:
            found = self.waiting.pop(self.added)
            self.total = list(map(plus, self.total, found)) if self.total else found
            self.added += 1


def plus(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    if one is None or other is None:
        return other if one is None else one
    return one.add_(other)


class Together(Learner):
    """An update has all parts of a batch; a worker is at most `staleness` steps ahead of what is complete."""

    def __init__(self, *told: Any, staleness: int, in_step: bool) -> None:
        """`in_step`: batch norms are over all workers, and only the whole batch has their means."""
        super().__init__(*told)
        self.ahead = staleness
        self.sums: dict[int, Sum] = {}
        self.whole = in_step and any(isinstance(each, BatchNorm) for each in self.model.modules())

    def acts(self, crew: Workers) -> Iterator[Act]:
        return crew.together(self.ahead)

    def obey(self, act: Act) -> None:
        if isinstance(act, Gradient):
            self.staleness[act.batch - act.version] += 1
            if not self.whole:
                found = self.gradients(self.part(act.batch, act.part), len(self.rows[act.batch]))
                self.sums.setdefault(act.batch, Sum()).add(act.part, found)
        elif isinstance(act, Update):
            rows = self.rows[act.batch]
            found = self.gradients(rows, len(rows)) if self.whole else self.sums.pop(act.batch).total
            update(self, found, self.rate(self.first + act.batch))


class Free(Learner):
    """Every part is an update of its own; with `adapt` the less the more others have come before it."""

    def __init__(self, *told: Any, adapt: bool) -> None:
        super().__init__(*told)
        self.adapt = adapt
        self.held: dict[
            int, tuple[int, GradientList]
        ] = {}  # of each worker, until it has brought them: batch, gradients

    def acts(self, crew: Workers) -> Iterator[Act]:
        return crew.free()

    def obey(self, act: Act) -> None:
        if isinstance(act, Gradient):
            found = self.gradients(self.part(act.batch, act.part), len(self.rows[act.batch]))
            self.held[act.worker] = act.batch, found
        elif isinstance(act, Push):
            self.staleness[act.late] += 1
            batch, found = self.held.pop(act.worker)
            if self.adapt and (less := late_factor(act.late)) != 1:
                for each in found:
                    if each is not None:
                        each.mul_(less)
            update(self, found, self.rate(self.first + batch))


def update(learner: Learner, gradients: GradientList, rate: float) -> None:
    """One step of the one optimizer."""
    _give(learner.parameters, gradients)
    set_lr(learner.job.context.optimizer, rate)
    learner.job.context.strategy.update()
    learner.job.context.optimizer.zero_grad(set_to_none=True)


def _give(parameters: Sequence[nn.Parameter], gradients: GradientList) -> None:
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
