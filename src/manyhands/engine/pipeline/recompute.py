"""Recompute: a stage that keeps what came from other ranks alone, and goes forward again before it goes backward.

forward     what came is kept, all else is forgotten
backward    forward once more, from what was kept: nothing is sent, nobody waits; then backward as usual
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from torch import Tensor
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

from manyhands.data.sampler import Batch
from manyhands.engine.loop.context import TrainContext
from manyhands.engine.sharding.hybrid import Hybrid


def recomputed(context: TrainContext, hybrid: Hybrid, part: Batch, number: int) -> Tensor:
    """The loss of a micro-batch."""
    kept: list[Tensor] = []
    contexts = hybrid.post.keeping(kept), _again(hybrid, kept, number)
    # Ranks that share a stage add up results in the second pass too, so none of them may end it early.
    with set_checkpoint_early_stop(False):
        loss: Tensor = checkpoint(context.losses, part, use_reentrant=False, context_fn=lambda: contexts)
    return loss


def _again(hybrid: Hybrid, kept: list[Tensor], number: int) -> AbstractContextManager[None]:
    """The second pass draws what the first one drew; averages that a batch norm keeps count once."""

    @contextmanager
    def again() -> Iterator[None]:
        buffers = [(each, each.clone()) for each in hybrid.model.buffers()]
        hybrid.post.begin_pass(number)
        with hybrid.post.taking(kept):
            yield
        for each, value in buffers:
            each.copy_(value)

    return again()
