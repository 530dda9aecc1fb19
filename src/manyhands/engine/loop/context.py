"""Context: what a step works with (model, strategy, feed, loss), and the protocol of a step."""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor, nn

from manyhands.comm.ranks.rank_group import Team
from manyhands.data.feeds import Feed
from manyhands.data.sampler import Batch, Share
from manyhands.engine.modules.sync_batchnorm import GlobalBatchNorm
from manyhands.engine.strategies.base import LocalBatch, Strategy


class Step(Protocol):
    """Does one update and gives the loss, still on the device.

    Losses and gradients weigh by this rank's share of the whole batch, so that those of all ranks add up to those
    of one device.
    """

    def __call__(self, batch: Batch, share: Share | None = None) -> Tensor: ...


@dataclass
class TrainContext:
    """What a step works on."""

    model: nn.Module
    strategy: Strategy
    feed: Feed
    loss: Callable[[Tensor, Tensor], Tensor]
    precision: str
    device: torch.device
    accumulate: int = 1
    team: Team = field(default_factory=Team)
    norms: Sequence[GlobalBatchNorm] = ()  # batch norms over all ranks
    later: contextlib.AbstractContextManager[object] = field(
        default_factory=contextlib.nullcontext
    )  # engine.modules.split_layers

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        return self.strategy.optimizer

    def autocast(self) -> contextlib.AbstractContextManager[object]:
        if self.precision == "bf16":
            return torch.autocast(self.device.type, torch.bfloat16)
        return contextlib.nullcontext()

    def prepared(self, feed: Feed, batch: Batch) -> tuple[Tensor, Tensor]:
        inputs, labels = feed.prepare(batch)
        return inputs.double() if self.precision == "fp64" and inputs.is_floating_point() else inputs, labels

    def answers(self, feed: Feed, batch: Batch) -> tuple[Tensor, Tensor, LocalBatch]:
        """The model's output and the labels that belong to it."""
        given = self.strategy.given(batch)
        inputs, labels = self.prepared(feed, given.inputs)
        if given.labels is not given.inputs:
            labels = self.prepared(feed, given.labels)[1]
        with self.autocast():
            outputs = (self.strategy.forward if self.model.training else self.strategy.predict)(inputs)
        return outputs, labels, given

    def losses(self, batch: Batch) -> Tensor:
        """The loss of one batch; what is compiled when the plan says so."""
        outputs, labels, given = self.answers(self.feed, batch)
        if len(labels) == 0:
            return outputs.sum()  # of nothing; others wait for what goes back from here
        with self.autocast():
            loss = self.loss(outputs, labels)
        return loss if given.weight == 1 else loss * given.weight
