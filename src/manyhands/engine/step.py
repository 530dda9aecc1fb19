"""The training step of one device: eager, compiled, or captured as a CUDA graph, always the same function."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from manyhands.data.feed import Batch, Feed
from manyhands.engine.shared import SharedUpdate
from manyhands.engine.team import Team
from manyhands.optim.optimizer import load_state
from manyhands.plan.plan import Plan

# Steps that a batch shape runs eagerly, on the stream that captures later, before its graph is captured: kernels
# are chosen and optimizer state is made in them. They are real steps of the training.
EAGER_BEFORE_CAPTURE = 3


class Step(Protocol):
    """Does one update and gives the loss, still on the device.

    `weight` is the share of the whole batch that this rank has: losses and gradients of all ranks add up to those
    of one device.
    """

    def __call__(self, batch: Batch, weight: float = 1.0) -> Tensor: ...


@dataclass
class Trainee:
    """What a step works on."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    feed: Feed
    loss: Callable[[Tensor, Tensor], Tensor]
    precision: str
    device: torch.device
    clip: float | None = None
    accumulate: int = 1
    team: Team = field(default_factory=Team)
    shared: SharedUpdate | None = None  # where the ranks share their weights

    def optimizer_state(self) -> dict[str, Any]:
        """The whole state of the optimizer; all ranks call it, the leader's answer counts."""
        return self.shared.state() if self.shared else self.optimizer.state_dict()

    def load_optimizer_state(self, state: dict[str, Any]) -> None:
        if self.shared:
            self.shared.load(state)
        else:
            load_state(self.optimizer, state)

    def autocast(self) -> contextlib.AbstractContextManager[object]:
        if self.precision == "bf16":
            return torch.autocast(self.device.type, torch.bfloat16)
        return contextlib.nullcontext()

    def losses(self, batch: Batch) -> Tensor:
        """The loss of one batch; what is compiled when the plan says so."""
        inputs, labels = self.feed.prepare(batch)
        with self.autocast():
            return self.loss(self.model(inputs), labels)


def make_step(trainee: Trainee, plan: Plan, batch_size: int) -> Step:
    """The step as the (bound) plan asks for it."""
    step = EagerStep(trainee, trainee.losses, trainee.shared or trainee.optimizer.step)
    if plan.compile == "on":
        step.losses = compiled_for(trainee.losses, -(-batch_size // trainee.accumulate))
        if compiles_update(plan):
            step.update = torch.compile(trainee.optimizer.step)
    return CapturedStep(step, trainee.device) if plan.capture == "on" else step


def compiles_update(plan: Plan) -> bool:
    """Whether the optimizer is compiled too; on CPU its fused kernel is as fast, and compiling takes long."""
    return plan.compile == "on" and plan.device == "cuda"


def compiled_for(losses: Callable[[Batch], Tensor], batch_size: int) -> Callable[[Batch], Tensor]:
    """Compile for full batches; the last, smaller one of an epoch runs eagerly rather than compile once more."""
    compiled = torch.compile(losses, dynamic=False)

    def choose(batch: Batch) -> Tensor:
        result: Tensor = (compiled if len(batch[0]) == batch_size else losses)(batch)
        return result

    return choose


@dataclass
class EagerStep:
    """Forward, backward, update."""

    trainee: Trainee
    losses: Callable[[Batch], Tensor]
    update: Callable[[], object]

    def __call__(self, batch: Batch, weight: float = 1.0) -> Tensor:
        self.trainee.optimizer.zero_grad(set_to_none=True)
        total = self._backward(batch, weight)
        if self.trainee.clip is not None and not self.trainee.shared:
            nn.utils.clip_grad_norm_(self.trainee.model.parameters(), self.trainee.clip, foreach=True)
        self.update()
        return total

    def _backward(self, batch: Batch, weight: float) -> Tensor:
        count = len(batch[0])
        if count == 0:  # a last batch of fewer samples than ranks
            return torch.zeros((), device=self.trainee.device)
        if self.trainee.accumulate == 1:
            loss = self.losses(batch)
            if weight != 1:
                loss = loss * weight
            loss.backward()  # type: ignore[no-untyped-call]
            return loss.detach()
        # Each part weighs by its samples, so that the sum is the mean over the whole batch.
        total = torch.zeros((), device=self.trainee.device)
        for part in zip(*(each.chunk(self.trainee.accumulate) for each in batch), strict=True):
            loss = self.losses(part) * (weight * len(part[0]) / count)
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.detach()
        return total


@contextlib.contextmanager
def trying_kernels(on: bool) -> Iterator[None]:
    """Let cuDNN try its kernels for each new shape, or not: a trial takes tenths of a second."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = on and before
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


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
    seen: dict[tuple[int, float], int] = field(default_factory=dict)
    graphs: dict[tuple[int, float], _Captured] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]

    def __call__(self, batch: Batch, weight: float = 1.0) -> Tensor:
        shape = (len(batch[0]), weight)
        if captured := self.graphs.get(shape):
            for fixed, new in zip(captured.batch, batch, strict=True):
                fixed.copy_(new)
            captured.graph.replay()
            return captured.loss.clone()
        self.seen[shape] = self.seen.get(shape, 0) + 1
        if self.seen[shape] <= EAGER_BEFORE_CAPTURE:
            # Only for the common size: the smaller last batch comes once an epoch.
            with trying_kernels(shape == next(iter(self.seen))):
                return self._eager(batch, weight)
        self.graphs[shape] = self._capture(batch, weight)
        return self(batch, weight)

    def _eager(self, batch: Batch, weight: float) -> Tensor:
        self.stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self.stream):
            loss = self.step(batch, weight)
        torch.cuda.current_stream(self.device).wait_stream(self.stream)
        return loss

    def _capture(self, batch: Batch, weight: float) -> _Captured:
        fixed = tuple(each.clone() for each in batch)
        graph = torch.cuda.CUDAGraph()
        # Gradients must be made inside the graph's own memory, hence none beforehand.
        self.step.trainee.optimizer.zero_grad(set_to_none=True)
        # thread_local: the thread of a host feed may pin memory meanwhile.
        with torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local"):
            loss = self.step(fixed, weight)
        return _Captured(graph, fixed, loss)
