"""Pipeline: the step of a plan that cuts layers: micro-batches, one after the other through the ranks that have them."""

from dataclasses import dataclass

import torch
from torch import Tensor

from manyhands.data.feed import Batch, Share
from manyhands.engine.step import Trainee


@dataclass
class HybridStep:
    """Every micro-batch forward, then every one backward (gpipe): ranks that have other layers work meanwhile."""

    trainee: Trainee
    microbatches: int = 1

    def __call__(self, batch: Batch, share: Share | None = None) -> Tensor:
        trainee, whole = self.trainee, len(batch[0])
        trainee.optimizer.zero_grad(set_to_none=True)
        count = min(self.microbatches, whole)
        parts = list(zip(*(each.tensor_split(count) for each in batch), strict=True))
        losses = [trainee.losses(part) * (len(part[0]) / whole) for part in parts]
        for loss in losses:
            loss.backward()  # type: ignore[no-untyped-call]
        trainee.exchange.update()
        return torch.stack([loss.detach() for loss in losses]).sum() * trainee.exchange.voice
