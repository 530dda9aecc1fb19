"""CUDA graph: a training step that is captured once per batch size and replayed."""

from collections.abc import Collection
from dataclasses import dataclass, field

import torch
from torch import Tensor

from manyhands.data.sampler import Batch, Share
from manyhands.engine.loop.context import Step, TrainContext
from manyhands.engine.loop.step import EagerStep, all_of, compiled_for, compiles_update
from manyhands.plan.plan import Plan

# Steps that a batch shape runs eagerly, on the stream that captures later, before its graph is captured: kernels
# are chosen and optimizer state is made in them. They are real steps of the training.
EAGER_BEFORE_CAPTURE = 3


def make_step(context: TrainContext, plan: Plan, batch_sizes: Collection[int]) -> Step:
    """The step as the (bound) plan asks for it, for full batches of these sizes."""
    step = EagerStep(context, context.losses)
    if plan.compile == "on":
        step.losses = compiled_for(context.losses, {-(-size // context.accumulate) for size in batch_sizes})
        if compiles_update(plan):
            context.optimizer.step = torch.compile(context.optimizer.step)  # type: ignore[method-assign, assignment]
    return CapturedStep(step, context.device) if plan.capture == "on" else step


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
        share = share or all_of(batch)
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
        self.step.context.optimizer.zero_grad(set_to_none=True)
        # thread_local: the thread of a host feed may pin memory meanwhile.
        with torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local"):
            loss = self.step(fixed, share)
        return _Captured(graph, fixed, loss)
