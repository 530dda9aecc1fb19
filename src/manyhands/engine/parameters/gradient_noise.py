"""Gradient noise: how much the gradients of batches differ, which says how large a batch still saves steps.

McCandlish et al. 2018, "An empirical model of large-batch training". The gradient of b samples has

    E |g_b|² = |G|² + tr Σ / b

so a step that knows the gradients of few (b) and of many (B) samples knows both terms without bias:

    |G|² = (B |g_B|² − b |g_b|²) / (B − b)        tr Σ = (|g_b|² − |g_B|²) / (1/b − 1/B)

    noise scale = tr Σ / |G|²,  each smoothed over steps first: the ratio of two noisy numbers is biased

Few and many are there anyway. A batch comes in K parts, a rank's or a micro-batch each, of which a step has
v_k = w_k g_k with w_k = b_k / B. Their sum is g_B, and Σ |v_k|² / w_k is a mean of |g_b|² with b = B / K, whatever
the sizes of the parts. Both formulas are linear in the squares: each rank smooths its own share, and only what is
written down is added up over ranks.
"""

import math
from collections.abc import Iterable, Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn

from manyhands.comm.ranks.rank_group import Team
from manyhands.compat import foreach_norm
from manyhands.data.sampler import Share

DECAY = 0.98  # of the smoothing: about the last fifty measured steps count

Number = TypeVar("Number", float, Tensor)


def moments(small: Number, big: Number, few: float, many: float) -> tuple[Number, Number]:
    """|G|² and tr Σ, without bias, from the squares of the gradients of few and of many samples."""
    gradient = (many * big - few * small) / (many - few)
    noise = (small - big) / (1 / few - 1 / many)
    return gradient, noise


def scale_of(gradient: float, noise: float) -> float | None:
    """The noise scale; None as long as chance has made the gradient's square no more than nothing."""
    return max(noise, 0.0) / gradient if 0 < gradient < math.inf and math.isfinite(noise) else None


class Noise:
    """One rank's share of what is known.

    Everything is added up in place on the device, so that a step may be captured in a CUDA graph; then `every` must
    be 1, for a graph does at every step what it did when it was captured.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], team: Team, device: torch.device, every: int = 1) -> None:
        self.parameters = [each for each in parameters if each.requires_grad]
        self.team, self.every, self.steps = team, every, 0
        self.due, self.left, self.parts = False, 0, 0
        self.share = Share(0, 0, 0)
        self.before: dict[nn.Parameter, Tensor] = {}  # gradients as the micro-batches before this one left them
        self.squares = torch.zeros(2, dtype=torch.float64, device=device)  # of few and of many samples, this step
        self.smooth = torch.zeros(3, dtype=torch.float64, device=device)  # |G|², tr Σ, and how many were measured
        self.told = 0.0

    def begin(self, share: Share, portions: Sequence[int]) -> None:
        """A step begins; `portions` are the samples of each of its micro-batches."""
        self.share, self.left = share, len(portions)
        alone = self.team.world == 1
        self.parts = sum(count > 0 for count in portions) if alone else min(self.team.world, share.whole)
        self.due = self.steps % self.every == 0 and self.parts > 1
        self.steps += 1
        if self.due:
            self.squares.zero_()

    def portion(self, samples: int) -> None:
        """A micro-batch has been added to the gradients; over ranks they are not looked at before all are there."""
        self.left -= 1
        if not self.due or self.team.world > 1:
            return
        now = {each: each.grad for each in self.parameters if each.grad is not None}
        mine = [grad - self.before[each] if each in self.before else grad for each, grad in now.items()]
        self._add_few(mine, samples)
        self.before = {each: grad.clone() for each, grad in now.items()} if self.left else {}

    def rank(self, gradients: Tensor) -> None:
        """Gradients, some or all, of this rank's share, before they are added to the others'."""
        if self.due:
            self._add_few([gradients], self.share.mine)

    def _add_few(self, gradients: Sequence[Tensor], samples: int) -> None:
        if samples:  # a stand-in weighs nothing
            self.squares[0].add_(_square(gradients), alpha=self.share.whole / samples)

    def whole(self, gradients: Sequence[Tensor], copies: int = 1) -> None:
        """Gradients, added up and not yet clipped; `copies`: so many ranks have the same."""
        if not self.due:
            return
        self.squares[1].add_(_square(gradients), alpha=1 / copies)
        many = float(self.share.whole)
        found = torch.stack(moments(self.squares[0], self.squares[1], many / self.parts, many))
        self.smooth[:2].lerp_(found, 1 - DECAY)
        self.smooth[2].add_(1)

    def read(self) -> float | None:
        """The noise scale, where a step was measured since it was read last; all ranks ask together."""
        gradient, noise, count = self.team.sum(self.smooth.clone()).tolist()
        if count == self.told:
            return None
        self.told = count
        return scale_of(gradient, noise)


def _square(gradients: Sequence[Tensor]) -> Tensor:
    return torch.stack(foreach_norm(list(gradients))).double().square().sum()
