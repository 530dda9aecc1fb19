"""Sharded norms: those of whole tensors of which each rank has a part, for optimizers whose layers go by them."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from manyhands.comm.ranks.rank_group import Team
from manyhands.optim.layerwise import Trusting


class Of(NamedTuple):
    """Of what a parameter is a part."""

    number: int  # of the whole tensor, the same on all ranks
    dims: int
    counts: bool = True  # no: another rank has the same part, and tells it


class Norms:
    """One rank's side; squares of all tensors are added up in one message."""

    def __init__(self, team: Team, parts: Mapping[Tensor, Of], count: int) -> None:
        self.team, self.parts, self.count = team, parts, count

    def dims(self, parameter: Tensor) -> int:
        return self.parts[parameter].dims

    def add_up(self, parameters: Sequence[Tensor], squares: Tensor) -> Tensor:
        """From and to a column for each parameter, of rows as many as there are."""
        parts = [self.parts[each] for each in parameters]
        numbers = torch.tensor([part.number for part in parts], dtype=torch.int64, device=squares.device)
        counts = torch.tensor([part.counts for part in parts], dtype=squares.dtype, device=squares.device)
        sums = squares.new_zeros(len(squares), self.count).index_add_(1, numbers, squares * counts)
        return self.team.sum(sums).index_select(1, numbers)


def use_norms(optimizer: torch.optim.Optimizer, team: Team, parts: Mapping[Tensor, Of], count: int) -> None:
    """Tell an optimizer that needs to know it of what its parameters are parts."""
    if isinstance(optimizer, Trusting):
        optimizer.parts = Norms(team, parts, count)
