"""The training step of one device: eager, compiled, or captured as a CUDA graph, always the same function."""

import contextlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor, nn

from manyhands.comm.ranks.rank_group import Team
from manyhands.data.feed import Batch, Feed, Share
from manyhands.engine.batchnorm import GlobalBatchNorm
from manyhands.engine.exchange import Exchange, Given
from manyhands.plan.plan import Plan

# Steps that a batch shape runs eagerly, on the stream that captures later, before its graph is captured: kernels
# are chosen and optimizer state is made in them. They are real steps of the training.
EAGER_BEFORE_CAPTURE = 3


class Step(Protocol):
    """Does one update and gives the loss, still on the device.

    Losses and gradients weigh by this rank's share of the whole batch, so that those of all ranks add up to those
    of one device.
    """

    def __call__(self, batch: Batch, share: Share | None = None) -> Tensor: ...


@dataclass
class Trainee:
    """What a step works on."""

    model: nn.Module
    exchange: Exchange
    feed: Feed
    loss: Callable[[Tensor, Tensor], Tensor]
    precision: str
    device: torch.device
    accumulate: int = 1
    team: Team = field(default_factory=Team)
    norms: Sequence[GlobalBatchNorm] = ()  # batch norms over all ranks
    later: contextlib.AbstractContextManager[object] = field(default_factory=contextlib.nullcontext)  # engine.apart

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        return self.exchange.optimizer

    def autocast(self) -> contextlib.AbstractContextManager[object]:
        if self.precision == "bf16":
            return torch.autocast(self.device.type, torch.bfloat16)
        return contextlib.nullcontext()

    def prepared(self, feed: Feed, batch: Batch) -> tuple[Tensor, Tensor]:
        inputs, labels = feed.prepare(batch)
        return inputs.double() if self.precision == "fp64" and inputs.is_floating_point() else inputs, labels

    def answers(self, feed: Feed, batch: Batch) -> tuple[Tensor, Tensor, Given]:
        """The model's output and the labels that belong to it."""
        given = self.exchange.given(batch)
        inputs, labels = self.prepared(feed, given.inputs)
        if given.labels is not given.inputs:
            labels = self.prepared(feed, given.labels)[1]
        with self.autocast():
            outputs = (self.exchange.forward if self.model.training else self.exchange.predict)(inputs)
        return outputs, labels, given

    def losses(self, batch: Batch) -> Tensor:
        """The loss of one batch; what is compiled when the plan says so."""
        outputs, labels, given = self.answers(self.feed, batch)
        if len(labels) == 0:
            return outputs.sum()  # of nothing; others wait for what goes back from here
        with self.autocast():
            loss = self.loss(outputs, labels)
        return loss if given.weight == 1 else loss * given.weight


def make_step(trainee: Trainee, plan: Plan, batch_sizes: Collection[int]) -> Step:
    """The step as the (bound) plan asks for it, for full batches of these sizes."""
    step = EagerStep(trainee, trainee.losses)
    if plan.compile == "on":
        step.losses = compiled_for(trainee.losses, {-(-size // trainee.accumulate) for size in batch_sizes})
        if compiles_update(plan):
            trainee.optimizer.step = torch.compile(trainee.optimizer.step)  # type: ignore[method-assign, assignment]
    return CapturedStep(step, trainee.device) if plan.capture == "on" else step


def compiles_update(plan: Plan) -> bool:
    """Whether the optimizer is compiled too; on CPU its fused kernel is as fast, and compiling takes long."""
    return plan.compile == "on" and plan.device == "cuda"


def compiled_for(losses: Callable[[Batch], Tensor], batch_sizes: Collection[int]) -> Callable[[Batch], Tensor]:
    """Compile for full batches; the last, smaller one of an epoch runs eagerly rather than compile once more."""
    compiled = torch.compile(losses, dynamic=False)

    def choose(batch: Batch) -> Tensor:
        result: Tensor = (compiled if len(batch[0]) in batch_sizes else losses)(batch)
        return result

    return choose


@dataclass
class EagerStep:
    """Forward, backward, update."""

    trainee: Trainee
    losses: Callable[[Batch], Tensor]

    def __call__(self, batch: Batch, share: Share | None = None) -> Tensor:
        trainee, whole = self.trainee, share or _all_of(batch)
        trainee.optimizer.zero_grad(set_to_none=True)
        *first, last = parts = portions(batch, whole, trainee.accumulate)
        if trainee.exchange.noise is not None:
            trainee.exchange.noise.begin(whole, [samples for _, samples in parts])
        losses = []
        for part, samples in first:
            with trainee.exchange.alone():
                losses.append(self._backward(part, samples, whole))
        losses.append(self._backward(*last, whole))
        loss = torch.stack(losses).sum() if first else losses[0]
        trainee.exchange.hear(loss)
        trainee.exchange.update()
        return loss

    def _backward(self, batch: Batch, samples: int, share: Share) -> Tensor:
        """Each part weighs by its samples, so that the sum is the mean over the whole batch of all ranks."""
        weight, scale = samples / share.whole, self.trainee.exchange.scale
        for norm in self.trainee.norms:
            norm.muted = samples == 0
        loss = self.losses(batch)
        if weight != 1:
            loss = loss * weight
        with self.trainee.later:
            (loss if scale == 1 else loss * scale).backward()  # type: ignore[no-untyped-call]
        if self.trainee.exchange.noise is not None:
            self.trainee.exchange.noise.portion(samples)
        return loss.detach()


def _all_of(batch: Batch) -> Share:
    count = len(batch[0])
    return Share(count, count, count)


def portions(batch: Batch, share: Share, accumulate: int) -> list[tuple[Batch, int]]:
    """A batch in parts, each with the number of samples that count; equally many on all ranks."""
    count = min(accumulate, share.most)
    if count == 1:
        return [(batch, share.mine)]
    parts = list(zip(*(each.tensor_split(count) for each in batch), strict=True))
    stand_in = tuple(each[:1] for each in batch)
    return [(part, len(part[0])) if len(part[0]) and share.mine else (stand_in, 0) for part in parts]


@dataclass
class _Captured:
    graph: torch.cuda.CUDAGraph
    batch: Batch
    loss: Tensor


@dataclass
class CapturedStep:
    """Replays the whole step, gather to update, as one CUDA graph; one graph for each batch size."""

    step: EagerStep
    device: torch.device
    seen: dict[Share, int] = field(default_factory=dict)
    graphs: dict[Share, _Captured] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]

    def __call__(self, batch: Batch, share: Share | None = None) -> Tensor:
        share = share or _all_of(batch)
        if captured := self.graphs.get(share):
            for fixed, new in zip(captured.batch, batch, strict=True):
                fixed.copy_(new)
            captured.graph.replay()
            return captured.loss.clone()
        self.seen[share] = self.seen.get(share, 0) + 1
        if self.seen[share] <= EAGER_BEFORE_CAPTURE:
            return self._eager(batch, share)
        self.graphs[share] = self._capture(batch, share)
        return self(batch, share)

    def _eager(self, batch: Batch, share: Share) -> Tensor:
        self.stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self.stream):
            loss = self.step(batch, share)
        torch.cuda.current_stream(self.device).wait_stream(self.stream)
        return loss

    def _capture(self, batch: Batch, share: Share) -> _Captured:
        fixed = tuple(each.clone() for each in batch)
        graph = torch.cuda.CUDAGraph()
        # Gradients must be made inside the graph's own memory, hence none beforehand.
        self.step.trainee.optimizer.zero_grad(set_to_none=True)
        # thread_local: the thread of a host feed may pin memory meanwhile.
        with torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local"):
            loss = self.step(fixed, share)
        return _Captured(graph, fixed, loss)
