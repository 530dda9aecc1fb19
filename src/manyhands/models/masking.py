"""Masking: which positions are real, and what is kept of them."""

import torch
from torch import Tensor, nn

PADDING = 0


class RealPositions(nn.Module):
    """Token ids (B, L) → True where a position is not padding.

    The first always counts, so that an empty text divides by one position and not by none.
    """

    def forward(self, ids: Tensor) -> Tensor:
        real = ids.ne(PADDING)
        return torch.cat([torch.ones_like(real[:, :1]), real[:, 1:]], dim=1)


class MeanOverReal(nn.Module):
    """The mean of (B, L, D) over the real positions."""

    def forward(self, states: Tensor, real: Tensor) -> Tensor:
        weight = real.unsqueeze(-1).to(states.dtype)
        return (states * weight).sum(1) / weight.sum(1)


class MaxOverReal(nn.Module):
    """The largest of each feature of (B, L, D) over the real positions."""

    def forward(self, states: Tensor, real: Tensor) -> Tensor:
        return states.masked_fill(~real.unsqueeze(-1), float("-inf")).max(dim=1).values
