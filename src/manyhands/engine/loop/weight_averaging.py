"""Weight averaging: the mean of the weights over steps, beside the weights that go on learning.

    ema    m ← decay·m + (1 − decay)·w     after every step
    swa    m ← m + (w − m) / (n + 1)       after some of the last steps: ten or more, at most an epoch apart

The arithmetic is torch's (swa_utils). Its AveragedModel copies a whole module, which neither weights in shared memory
nor layers in parts allow: here a rank keeps the mean of what it has of the weights, and the mean takes their place, in
the model itself, while it is scored or written. The training does not notice.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.optim.swa_utils import get_ema_multi_avg_fn, get_swa_multi_avg_fn

from manyhands.compat import BatchNorm
from manyhands.data.feeds import Feed
from manyhands.engine.loop.context import TrainContext
from manyhands.engine.loop.evaluate import Score, evaluate
from manyhands.engine.strategies.base import local

SNAPSHOTS = 10  # that stochastic weight averaging takes, or more
NORM_BATCHES = 100  # over which statistics of batch norms are taken: means over thousands of samples hardly move

Blend = Callable[[Any, Any, int], None]  # means, weights, and how many the means are of


def ema(context: TrainContext, decay: float) -> "Average":
    """The exponential moving average, from the first step on."""
    blend: Blend = get_ema_multi_avg_fn(decay)  # type: ignore[no-untyped-call]
    return Average(context, lambda step: True, blend)


def swa(context: TrainContext, share: float, total: int) -> "Average":
    """The mean over the last share of all steps."""
    blend: Blend = get_swa_multi_avg_fn()  # type: ignore[no-untyped-call]
    return Average(context, lambda step: taken(step, total, share, len(context.feed)), blend)


def taken(step: int, total: int, share: float, per_epoch: int) -> bool:
    """Whether stochastic weight averaging takes the weights after a step; it takes the last ones in any case.

    >>> [step for step in range(1, 101) if taken(step, 100, 0.4, 25)]
    [64, 68, 72, 76, 80, 84, 88, 92, 96, 100]
    """
    last, left = max(1, round(share * total)), total - step
    return left < last and left % max(1, min(per_epoch, last // SNAPSHOTS)) == 0


class Average:
    """The mean of a trainee's weights. All ranks call every method together."""

    def __init__(self, context: TrainContext, due: Callable[[int], bool], blend: Blend) -> None:
        self.context, self.due, self.blend = context, due, blend
        self.count = 0  # weights that the mean is of
        self.names = [name for name, each in context.model.named_parameters() if each.is_floating_point()]
        self.means = [each.clone() for each in self._weights()]
        self.statistics: list[Tensor] | None = None  # of batch norms, for this mean; None: not known yet

    def after(self, step: int) -> None:
        """Take the weights into the mean, if they are due."""
        if not self.due(step):
            return
        weights = self._weights()
        if self.count == 0:
            _copy(weights, self.means)
        elif weights:  # a rank may have no layer that learns
            self.blend(self.means, weights, self.count)
        self.count += 1
        self.statistics = None

    def score(self, feed: Feed, told: Callable[[int], None] = lambda samples: None) -> Score | None:
        """The loss and the accuracy of the mean; None as long as there is none."""
        if self.count == 0:
            return None
        with self._in_place():
            return evaluate(self.context, feed, told)

    def weights(self) -> dict[str, Tensor]:
        """The mean as one device would have it, nothing as long as there is none; the leader's answer counts."""
        if self.count == 0:
            return {}
        with self._in_place():
            return {name: each.detach().clone() for name, each in self.context.strategy.weights().items()}

    def load(self, tensors: dict[str, Tensor], count: int) -> None:
        """Go on from a mean that was written. It passes through the model, whose own weights are to be loaded after."""
        self.context.strategy.load_weights(tensors)
        self.context.team.barrier()
        _copy(self._weights(), self.means)
        self.statistics = [each.clone() for each in self._buffers()]
        self.count = count
        self.context.team.barrier()

    @contextmanager
    def _in_place(self) -> Iterator[None]:
        """The mean in the model for the block. After an error nothing is put back: other ranks might not come."""
        with torch.no_grad():
            live = [*self._weights(), *self._buffers()]
            held = [each.clone() for each in live]
            self._put([*self.means, *(self.statistics or held[len(self.means) :])], live)
            if self.statistics is None:
                self._take_statistics()
                self.statistics = [each.clone() for each in self._buffers()]
            yield
            self._put(held, live)

    def _put(self, values: Sequence[Tensor], places: Sequence[Tensor]) -> None:
        """Fill the model while no rank is at work with it: all may have the same weights in shared memory."""
        self.context.team.barrier()
        _copy(values, places)
        self.context.team.barrier()

    def _take_statistics(self) -> None:
        """Batch norms' own, over training batches, as torch's update_bn takes them; here for layers in parts too."""
        context, strategy = self.context, self.context.strategy
        norms = self._norms()
        if not norms:
            return
        momenta, drawn = [each.momentum for each in norms], strategy.rank_state()
        for each in norms:
            each.momentum = None  # the mean over all batches
            if each.running_mean is not None:  # a rank may have no part of it
                each.reset_running_stats()
        context.model.train()
        on_gpu = [context.device] if context.device.type == "cuda" else []
        with torch.random.fork_rng(on_gpu):
            for number, batch in enumerate(islice(context.feed.epoch(0), NORM_BATCHES)):
                for norm in context.norms:
                    norm.muted = context.feed.share(number).mine == 0
                inputs, _ = context.prepared(context.feed, strategy.given(batch).inputs)
                with context.autocast():
                    strategy.predict(inputs)
        strategy.load_rank_state(drawn)
        for each, momentum in zip(norms, momenta, strict=True):
            each.momentum = momentum

    def _weights(self) -> list[Tensor]:
        """What this rank has of the weights; asked for anew, since FSDP puts them together and takes them apart."""
        state = self.context.model.state_dict()
        return [local(state[name]) for name in self.names]

    def _norms(self) -> list[BatchNorm]:
        modules = self.context.model.modules()
        return [each for each in modules if isinstance(each, BatchNorm) and each.track_running_stats]

    def _buffers(self) -> list[Tensor]:
        return [each for norm in self._norms() for each in norm.buffers(recurse=False)]


@torch.no_grad()
def _copy(values: Sequence[Tensor], places: Sequence[Tensor]) -> None:
    for value, place in zip(values, places, strict=True):
        place.copy_(value)
