"""Rank group: the ranks that train together, and what they exchange beside gradients."""

from dataclasses import dataclass
from typing import Any

import torch.distributed as dist
from torch import Tensor

from manyhands.comm.ranks import objects


@dataclass(frozen=True)
class Team:
    """One rank's view; a team of one exchanges nothing."""

    rank: int = 0
    world: int = 1
    group: Any = None  # of torch.distributed; none: all ranks

    @property
    def is_leader(self) -> bool:
        """Whether this rank is the one that writes."""
        return self.rank == 0

    def sum(self, tensor: Tensor) -> Tensor:
        """Add up a tensor over the ranks, in place."""
        if self.world > 1:
            dist.all_reduce(tensor, group=self.group)
        return tensor

    def broadcast_json(self, value: Any) -> Any:
        """The leader's value, on every rank: plain values and tensors (comm.ranks.objects)."""
        if self.world == 1:
            return value
        return objects.broadcast(value, self.group)

    def all_gather_json(self, value: Any) -> list[Any]:
        """Every rank's value, in order of rank."""
        if self.world == 1:
            return [value]
        return objects.gather(value, self.group)

    def barrier(self) -> None:
        """Wait for each other."""
        if self.world > 1:
            dist.barrier(self.group)
