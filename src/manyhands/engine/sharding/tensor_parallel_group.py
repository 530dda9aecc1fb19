"""Tensor parallel group: ranks that have parts of the same, and the process groups in which they exchange it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

from manyhands.comm.ranks.rank_group import Team
from manyhands.engine.sharding.redistribute import Post
from manyhands.plan.resharding import parameter_groups, sample_groups
from manyhands.plan.sharding import Split


@dataclass(frozen=True)
class Fellows:
    """Those that have the parts by parameter of a layer's results for the same samples, as one of them sees them."""

    members: tuple[int, ...]
    group: Any
    post: Post  # counts what is sent

    @property
    def number(self) -> int:
        """Which of the parts this rank has."""
        return self.members.index(self.post.rank)

    def rows(self, row: Tensor) -> list[Tensor]:
        """Everyone's, all of one shape, in the order of the parts."""
        found = [torch.empty_like(row) for _ in self.members]
        dist.all_gather(found, row, group=self.group)
        self.post.sent_bytes += (len(found) - 1) * row.numel() * row.element_size()
        placed = dict(zip(sorted(self.members), found, strict=True))  # a group counts its ranks upwards
        return [placed[each] for each in self.members]

    def sum(self, row: Tensor) -> Tensor:
        """Added up over all, as a tensor of its own."""
        return self.post.reduced(row, self.group)

    def most(self, row: Tensor) -> Tensor:
        """The largest of all, number by number."""
        return self.post.reduced(row, self.group, dist.ReduceOp.MAX)

    def entered(self, tensor: Tensor) -> Tensor:
        """What all have, and each makes something else of: the gradients are added up."""
        result: Tensor = _Entered.apply(tensor, self)  # type: ignore[no-untyped-call]
        return result


class _Entered(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, fellows: Fellows) -> Tensor:
        ctx.fellows = fellows
        return tensor.view_as(tensor)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.fellows.sum(gradient), None


class Groups:
    """Process groups by their members, made in one order on all ranks."""

    def __init__(self, groups: Iterable[Sequence[tuple[int, ...]]], team: Team) -> None:
        self.rank = team.rank
        everyone = tuple(range(team.world))
        wanted = {members for each in groups for members in each if len(members) > 1}
        self.made: dict[tuple[int, ...], Any] = {
            members: dist.group.WORLD if members == everyone else dist.new_group(list(members))
            for members in sorted(wanted)
        }

    def _mine(self, groups: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        return next((members for members in groups if self.rank in members), ())

    def of(self, groups: Sequence[tuple[int, ...]]) -> Any:
        """The one of these groups in which this rank is; none where it is in none, or alone."""
        return self.made.get(self._mine(groups))

    def team(self, split: Split) -> Team:
        """Those that have other samples of the same."""
        mine = self._mine(sample_groups(split))
        return Team(mine.index(self.rank), len(mine), self.made.get(mine)) if mine else Team()

    def fellows(self, split: Split, post: Post) -> Fellows | None:
        mine = self._mine(parameter_groups(split))
        return Fellows(mine, self.made[mine], post) if len(mine) > 1 else None
