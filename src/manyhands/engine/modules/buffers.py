"""Buffers that a model keeps of its own, beside those of batch norm: how ranks come to have the same.

A rank changes them by its own samples. Before the model is scored or saved they become the mean over ranks; of whole
numbers, those of the first rank. What is alike on all ranks stays as it is, to the bit.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from manyhands.engine.modules.sync_batchnorm import GlobalBatchNorm


def own_buffers(model: nn.Module) -> Iterator[Tensor]:
    """All but those of batch norms that span ranks, which are the same there."""
    for module in model.modules():
        if not isinstance(module, GlobalBatchNorm):
            yield from module.buffers(recurse=False)


@torch.no_grad()
def average(buffers: Iterable[Tensor], group: Any = None) -> None:
    """Over a group's ranks, all of which call it."""
    for buffer in buffers:
        first = buffer.detach().clone(memory_format=torch.contiguous_format)
        dist.broadcast(first, group=group, group_src=0)
        if buffer.is_floating_point():
            apart = torch.where(buffer == first, 0.0, buffer - first).contiguous()
            dist.all_reduce(apart, group=group)
            first += apart / dist.get_world_size(group)
        buffer.copy_(first)


def take_first(buffers: Iterable[Tensor]) -> None:
    """The first rank's, as DistributedDataParallel sends them before each forward pass."""
    for buffer in buffers:
        dist.broadcast(buffer.detach(), 0)
