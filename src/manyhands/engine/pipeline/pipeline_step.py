"""Pipeline step: the step of a plan that cuts layers: micro-batches go through the ranks in the order of a schedule.

Every rank carries out the whole program of each micro-batch, in which it has work at its own stages alone and waits
only for what these take: so stages work at the same time (plan.pipeline_schedule draws how).
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from manyhands.data.sampler import Batch, Share
from manyhands.engine.loop.context import TrainContext
from manyhands.engine.pipeline.owt_boundary import BoundaryStep
from manyhands.engine.pipeline.pausable_pass import PausablePass
from manyhands.engine.pipeline.recompute import recomputed
from manyhands.engine.sharding.hybrid import Hybrid
from manyhands.plan.pipeline_schedule import Action, orders, stages_per_device


@dataclass
class PipelineStep:
    """Micro-batches forward and backward, then the update."""

    context: TrainContext
    hybrid: Hybrid
    microbatches: int = 1
    boundary: str = "gather"  # of layers by sample and by parameter: gather, turns, updates
    threads: ThreadPoolExecutor | None = None  # of passes that stop between stages

    def __post_init__(self) -> None:
        if stages_per_device(self.hybrid.pipeline.schedule) > 1:
            device = self.context.device
            settle = partial(torch.cuda.set_device, device) if device.type == "cuda" else None
            self.threads = ThreadPoolExecutor(2 * self.microbatches, "pass", settle)

    def __call__(self, batch: Batch, share: Share | None = None) -> Tensor:
        context, whole = self.context, len(batch[0])
        context.optimizer.zero_grad(set_to_none=True)
        self.hybrid.post.step += 1
        if self.boundary != "gather" and whole >= 2 * context.team.world:
            return self._in_turns(batch)
        count = min(self.microbatches, whole)
        parts = list(zip(*(each.tensor_split(count) for each in batch), strict=True))
        passes = _Passes(self, [(part, len(part[0]) / whole) for part in parts])
        for action in self._order(count):
            passes.go_on(action)
        self.hybrid.post.stop = None
        self.hybrid.update()
        return torch.stack(passes.told).sum() * self.hybrid.voice

    def _in_turns(self, batch: Batch) -> Tensor:
        """Layers by sample at once, layers by parameter for one rank's samples after the other (see owt_boundary)."""
        hybrid, whole, learns = self.hybrid, len(batch[0]), self.boundary == "updates"

        def share(rank: int) -> float:
            """Of the batch whose mean is the loss: in a turn that learns, it is the turn's own."""
            return hybrid.input_layout.span(rank, whole).size / whole if learns else 1.0

        hybrid.post.handover = handover = BoundaryStep(whole)
        losses = []
        for turn in range(self.context.team.world):
            handover.turn = turn
            hybrid.post.begin_pass(turn)
            loss = self.context.losses(batch)
            (loss / share(turn)).backward()  # type: ignore[no-untyped-call]
            if learns:
                hybrid.update(some=True)
                hybrid.optimizer.zero_grad(set_to_none=True)
            losses.append(loss.detach())
        for boundary in handover.boundaries.values():
            boundary.backward(share(hybrid.team.rank))
        hybrid.post.handover = None
        hybrid.update()
        return torch.stack(losses).sum() * hybrid.voice

    def _order(self, count: int) -> Sequence[Action]:
        """What this rank does."""
        pipeline = self.hybrid.pipeline
        if pipeline.schedule == "gpipe":  # a rank may have several stages then, or none
            return orders("gpipe", 1, count)[0]
        return pipeline.orders(count)[pipeline.position[self.hybrid.team.rank]]


@dataclass
class _Passes:
    """What is under way in one step."""

    step: PipelineStep
    parts: Sequence[tuple[Batch, float]]  # micro-batches, and their share of the batch
    losses: dict[int, Tensor] = field(default_factory=dict)
    told: list[Tensor] = field(default_factory=list)
    turns: dict[tuple[str, int], PausablePass] = field(default_factory=dict)
    waiting: dict[int, int] = field(default_factory=dict)  # weight gradients that each micro-batch has left for later

    def go_on(self, action: Action) -> None:
        hybrid, number = self.step.hybrid, action.microbatch
        if action.kind == "weights":
            hybrid.later.run(self.waiting.pop(number))
            return
        hybrid.post.stage = action.stage
        work = self._forward if action.kind == "forward" else self._backward
        if self.step.threads is None:
            work(number)
            return
        key = action.kind, number
        if key not in self.turns:
            self.turns[key] = PausablePass(self.step.threads, lambda: work(number))
        hybrid.post.stop = self.turns[key].suspend
        self.turns[key].resume()

    def _forward(self, number: int) -> None:
        (part, share), context, hybrid = self.parts[number], self.step.context, self.step.hybrid
        hybrid.post.begin_pass(number)
        again = hybrid.pipeline.recompute
        self.losses[number] = share * (recomputed(context, hybrid, part, number) if again else context.losses(part))
        self.told.append(self.losses[number].detach())

    def _backward(self, number: int) -> None:
        later = self.step.hybrid.later
        before = len(later)
        # In this thread on a GPU too, where autograd has one for all passes, which a pass that stops would hold up.
        with torch.autograd.set_multithreading_enabled(False):
            self.losses.pop(number).backward()  # type: ignore[no-untyped-call]
        self.waiting[number] = len(later) - before
