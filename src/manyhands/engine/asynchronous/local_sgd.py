"""Local SGD: every rank learns weights of its own from its part of each batch; now and then all are averaged.

    every=3         rank 0   ─●─●─●┐ ┌●─●─●┐ ┌●─           mean       x ← mean of all x
                                   ├─┤     ├─┤             elastic    d = a·(x − c)    x ← x − d    c ← c + Σ d
                    rank 1   ─●─●─●┘ └●─●─●┘ └●─                      with a centre c that all ranks have

A rank's gradients weigh as many times its share of the batch as there are ranks, which is 1 where parts are equal. So
the plain mean of all weights counts every sample alike, and with every=1 it is synchronous training, momentum and
uneven batches included.
"""

import contextlib
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import Tensor, nn

from manyhands.comm.backends.shm import ShmGroup
from manyhands.comm.ranks.rank_group import Team
from manyhands.engine.modules.sync_batchnorm import own_norms, with_own_norms
from manyhands.engine.parameters.flat_parameters import FlatParameters
from manyhands.engine.strategies.ddp import Make
from manyhands.engine.strategies.single_process import SingleProcess
from manyhands.optim.factory import load_state
from manyhands.plan.consistency import averages, elastic_rate


class LocalSGD(SingleProcess):
    """One rank's side of it."""

    def __init__(
        self,
        model: nn.Module,
        make: Make,
        clip: float | None,
        team: Team,
        *,
        every: int,
        after: int = 0,
        elastic: bool = False,
    ) -> None:
        self.team, self.every, self.after = team, every, after
        self.scale = float(team.world)
        self.norms, self.steps = own_norms(model), 0
        flat, group = FlatParameters(model, buffers=True), dist.group.WORLD
        trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.group = group if isinstance(group, ShmGroup) else None
        self.copies = self.group.shared(flat.size, flat.dtype) if self.group else []
        # What is added up over ranks: where memory is shared, it lies there.
        self.sent = (
            self.copies[team.rank]
            if self.copies
            else torch.zeros(flat.size, dtype=flat.dtype, device=trainable[0].device)
        )
        self.row = torch.zeros_like(self.sent) if elastic else self.sent  # weights and statistics of this rank
        flat.read(self.row)
        dist.broadcast(self.row, 0)
        flat.move_in(self.row)
        self.centre = self.row.clone() if elastic else None
        super().__init__(model, make(trainable), clip)

    def forward(self, inputs: Tensor) -> Tensor:
        return with_own_norms(self.model, self.norms, inputs)

    def update(self) -> None:
        super().update()
        self.met = averages(self.steps, self.every, self.after)
        self.steps += 1
        if self.met and self.centre is None:
            self._average()
        elif self.met:
            self._draw_together()

    def _average(self) -> None:
        self._add_up()
        self.row.div_(self.team.world)

    def _draw_together(self) -> None:
        assert self.centre is not None
        torch.sub(self.row, self.centre, out=self.sent).mul_(elastic_rate(self.team.world))
        self.row.sub_(self.sent)
        self._add_up()
        self.centre.add_(self.sent)

    def _add_up(self) -> None:
        if self.group:
            self.group.all_reduce_every(self.copies)
        else:
            self.team.sum(self.sent)

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """With the mean, or the centre; then each goes on from its own."""
        own = self.row.clone()
        if self.centre is None:
            self._average()
        else:
            self.row.copy_(self.centre)
        try:
            yield
        finally:
            self.row.copy_(own)

    def weights(self) -> dict[str, Tensor]:
        with self.reading():
            return {name: tensor.clone() for name, tensor in self.model.state_dict().items()}

    def load_weights(self, tensors: dict[str, Tensor]) -> None:
        super().load_weights(tensors)
        if self.centre is not None:
            self.centre.copy_(self.row)

    def rank_state(self) -> dict[str, Tensor]:
        """Copies, for a view is sent with all that it is a view of."""
        state = self.optimizer.state_dict()["state"]
        return {
            "steps": torch.tensor([self.steps]),
            **{f"weights.{name}": tensor.clone() for name, tensor in self.model.state_dict().items()},
            **{
                f"state.{number}.{key}": value.clone()
                for number, values in state.items()
                for key, value in values.items()
                if isinstance(value, Tensor)
            },
        }

    def load_rank_state(self, tensors: dict[str, Tensor]) -> None:
        if "steps" not in tensors:
            return
        self.steps = int(tensors["steps"])
        state, weights = self.optimizer.state_dict(), {}
        for name, tensor in tensors.items():
            what, _, rest = name.partition(".")
            if what == "weights":
                weights[rest] = tensor
            elif what == "state":
                number, _, key = rest.partition(".")
                state["state"].setdefault(int(number), {})[key] = tensor
        self.model.load_state_dict(weights)
        load_state(self.optimizer, state)
