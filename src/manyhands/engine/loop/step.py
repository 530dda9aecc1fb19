"""The training step of one device: eager, compiled, or captured as a CUDA graph, always the same function."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

import torch
from torch import Tensor

from manyhands.data.sampler import Batch, Share
from manyhands.engine.loop.context import TrainContext
from manyhands.plan.plan import Plan


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

    context: TrainContext
    losses: Callable[[Batch], Tensor]

    def __call__(self, batch: Batch, share: Share | None = None) -> Tensor:
        context, whole = self.context, share or all_of(batch)
        context.optimizer.zero_grad(set_to_none=True)
        *first, last = parts = portions(batch, whole, context.accumulate)
        if context.strategy.noise is not None:
            context.strategy.noise.begin(whole, [samples for _, samples in parts])
        losses = []
        for part, samples in first:
            with context.strategy.alone():
                losses.append(self._backward(part, samples, whole))
        losses.append(self._backward(*last, whole))
        loss = torch.stack(losses).sum() if first else losses[0]
        context.strategy.hear(loss)
        context.strategy.update()
        return loss

    def _backward(self, batch: Batch, samples: int, share: Share) -> Tensor:
        """Each part weighs by its samples, so that the sum is the mean over the whole batch of all ranks."""
        weight, scale = samples / share.whole, self.context.strategy.scale
        for norm in self.context.norms:
            norm.muted = samples == 0
        loss = self.losses(batch)
        if weight != 1:
            loss = loss * weight
        with self.context.later:
            (loss if scale == 1 else loss * scale).backward()  # type: ignore[no-untyped-call]
        if self.context.strategy.noise is not None:
            self.context.strategy.noise.portion(samples)
        return loss.detach()


def all_of(batch: Batch) -> Share:
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
