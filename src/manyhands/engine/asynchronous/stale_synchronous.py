"""Stale synchronous: data parallelism in which a rank goes on before the others' gradients have come, by at most so
many steps.

    staleness 1     rank 0   ─ 0 ─┬─ 1 ─┬─ 2 ──┬─ 3 ─       before step c all sums before c − 1 are in the weights,
                    sum 0         └─────│─┐ ┌──│───         and all that have come since
                    rank 1   ───── 0 ───┴─┴─ 1 ┴──── 2 ─

Every rank has the whole model. The gradients of a step go out in one row, the loss behind them; sums are applied in
order, each with its own step's rate, so that ranks that have applied equally many have the same weights to the bit.
Without staleness it is synchronous training.
"""

from collections import Counter, deque

import torch
import torch.distributed as dist
from torch import Tensor, nn

from manyhands.comm.backends.async_all_reduce import Sums, sums
from manyhands.comm.ranks.rank_group import Team
from manyhands.engine.modules.buffers import average, own_buffers
from manyhands.engine.modules.sync_batchnorm import own_norms, with_own_norms
from manyhands.engine.parameters.flat_parameters import FlatParameters
from manyhands.engine.strategies.ddp import Make
from manyhands.engine.strategies.single_process import SingleProcess
from manyhands.optim.factory import set_lr
from manyhands.plan.consistency import ready


class StaleSynchronous(SingleProcess):
    """One rank's side of it."""

    def __init__(
        self,
        model: nn.Module,
        make: Make,
        clip: float | None,
        team: Team,
        most: int,
        later: Sums | None = None,
    ) -> None:
        """`most`: steps that a rank may be ahead; `later`: what adds up rows of gradients, one a step."""
        self.team, self.most = team, most
        self.flat = FlatParameters(model)
        self.norms = own_norms(model) if most else []  # ranks that keep step normalize as all together do
        trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.device = trainable[0].device
        _like_the_first(FlatParameters(model, buffers=True), self.device)
        self.later = later or sums(row_size(self.flat), self.flat.dtype, self.device, most + 1)
        self.step = self.applied = 0
        self.rates: deque[float] = deque()  # of the steps that are not applied
        self.told: list[float] = []
        self.seen: Counter[int] = Counter()
        super().__init__(model, make(trainable), clip)

    def forward(self, inputs: Tensor) -> Tensor:
        return with_own_norms(self.model, self.norms, inputs)

    def hear(self, loss: Tensor) -> None:
        self.loss = loss

    def update(self) -> None:
        """Send this step's gradients; apply what has come, and what must have before the next step."""
        self.seen[self.step - self.applied] += 1
        self._send()
        self.step += 1
        while self.applied < self.step and (
            not ready(self.step, self.applied, self.most) or self.later.come(self.applied)
        ):
            self._apply()

    def _send(self) -> None:
        row = self.later.row(self.step)
        has = row[self.flat.size + 1 :].fill_(1)
        for number, parameter in enumerate(self.flat.parameters):
            if parameter.grad is None:  # this rank did not use it
                has[number] = 0
                self.flat.view(row, number).zero_()
            else:
                self.flat.view(row, number).copy_(parameter.grad)
        row[self.flat.size] = self.loss
        self.rates.append(float(self.optimizer.param_groups[0]["lr"]))
        self.later.send(self.step)

    def _apply(self) -> None:
        """The oldest sum that is not in the weights yet."""
        total = self.later.take(self.applied)
        used = total[self.flat.size + 1 :].tolist()
        for number, parameter in enumerate(self.flat.parameters):
            parameter.grad = self.flat.view(total, number) if used[number] else None
        now = float(self.optimizer.param_groups[0]["lr"])
        set_lr(self.optimizer, self.rates.popleft())
        super().update()
        set_lr(self.optimizer, now)
        self.optimizer.zero_grad(set_to_none=True)
        self.told.append(float(total[self.flat.size]))
        self.applied += 1

    def losses(self) -> list[float] | None:
        told, self.told = self.told, []
        return told

    def settle(self) -> None:
        """Apply all; and let the statistics of batch norm, which each rank has of its own samples, be the mean."""
        while self.applied < self.step:
            self._apply()
        tracked = [each for norm in self.norms for each in norm.buffers() if each.is_floating_point()]
        if tracked and self.team.world > 1:
            row = self.team.sum(torch.cat([each.flatten() for each in tracked])).div_(self.team.world)
            for each, part in zip(tracked, torch.split(row, [each.numel() for each in tracked]), strict=True):
                each.copy_(part.view_as(each))

    def sync_buffers(self) -> None:
        if self.team.world > 1:
            ours = {id(each) for norm in self.norms for each in norm.buffers()}
            average(each for each in own_buffers(self.model) if id(each) not in ours)

    def staleness(self) -> dict[int, int] | None:
        return dict(self.seen)

    def rank_state(self) -> dict[str, Tensor]:
        return {"staleness": torch.tensor([self.seen[late] for late in range(self.most + 1)])}

    def load_rank_state(self, tensors: dict[str, Tensor]) -> None:
        if "staleness" in tensors:
            self.seen = Counter(dict(enumerate(tensors["staleness"].tolist())))


def row_size(flat: FlatParameters) -> int:
    """Behind the gradients go the loss, and of how many ranks each parameter has one."""
    return flat.size + 1 + len(flat.parameters)


def _like_the_first(flat: FlatParameters, device: torch.device) -> None:
    """Give the model the first rank's weights."""
    row = torch.zeros(flat.size, dtype=flat.dtype, device=device)
    flat.read(row)
    dist.broadcast(row, 0)
    flat.write(row)
