"""Shared: data parallelism through shared memory.

    weights   ┌───────── one copy, in which every rank's model lives ─────────┐
    row 0     │ gradients of rank 0                                           │
    row 1     │ gradients of rank 1                                           │
              └── rank 0 adds up and updates ──┴── rank 1 adds up and updates ┘

Backward puts each gradient into the rank's row; after a barrier every rank adds up its own part of all rows and
updates that part of the weights; after a second barrier all go on. Nothing is gathered, and the optimizer's state
is spread over the ranks by itself. Works for optimizers that treat every element alike.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from manyhands.comm.reduction import parts, reduce_rows
from manyhands.comm.shm import ShmGroup
from manyhands.engine.exchange import Alone
from manyhands.engine.team import Team
from manyhands.errors import ModelError
from manyhands.optim.optimizer import load_state

ALIGNED = 64  # elements: every parameter begins on a cache line of its own


class Shared(Alone):
    """One rank's side of it."""

    def __init__(
        self,
        model: nn.Module,
        make: Callable[[list[nn.Parameter]], torch.optim.Optimizer],
        clip: float | None,
        group: ShmGroup,
        team: Team,
    ) -> None:
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        dtypes = {parameter.dtype for parameter in parameters}
        if len(dtypes) > 1:
            raise ModelError(f"parameters of several types ({', '.join(map(str, dtypes))}) cannot share memory yet")
        self.parameters, self.group, self.team = parameters, group, team
        self.starts, total = _starts(self.parameters)
        self.flat = group.shared(total, dtypes.pop())[0]
        self.rows = group.shared(total, self.flat.dtype)
        self.part = parts(total, team.world)[team.rank]
        self._move_in()
        self.own = nn.Parameter(self.flat[self.part])
        super().__init__(model, make([self.own]), clip)

    def _move_in(self) -> None:
        """Let the parameters be views of the one copy, and their gradients go to this rank's row."""
        self.missing = set(range(len(self.parameters)))
        views = [self._view(self.flat, number) for number in range(len(self.parameters))]
        if self.team.leads:
            for view, parameter in zip(views, self.parameters, strict=True):
                view.copy_(parameter.detach())
        self.group.meet()
        for number, (view, parameter) in enumerate(zip(views, self.parameters, strict=True)):
            parameter.data = view
            parameter.register_post_accumulate_grad_hook(self._keep(number))  # type: ignore[no-untyped-call]

    def _view(self, row: Tensor, number: int) -> Tensor:
        """A parameter's place in a row, laid out in memory as the parameter is."""
        parameter = self.parameters[number]
        return row.as_strided(parameter.shape, parameter.stride(), row.storage_offset() + self.starts[number])

    def _keep(self, number: int) -> Callable[[nn.Parameter], None]:
        place = self._view(self.rows[self.team.rank], number)

        def hook(parameter: nn.Parameter) -> None:
            assert parameter.grad is not None
            if number in self.missing:
                place.copy_(parameter.grad)
                self.missing.remove(number)
            else:  # a further part of an accumulated batch
                place.add_(parameter.grad)
            parameter.grad = None

        return hook

    def update(self) -> None:
        """Add up this rank's part of the gradients, and update this rank's part of the weights."""
        for number in self.missing:  # parameters that this rank did not use
            self._view(self.rows[self.team.rank], number).zero_()
        self.missing = set(range(len(self.parameters)))
        if self.noise is not None:
            self.noise.rank(self.rows[self.team.rank])
        self.group.meet()
        mine = [row[self.part] for row in self.rows]
        total = mine[self.team.rank]
        reduce_rows(mine, [total])
        if self.noise is not None:
            self.noise.whole([total])
        if self.clip is not None:
            norm = self.team.sum(total.square().sum()).sqrt()
            total.mul_(torch.clamp(self.clip / (norm + 1e-6), max=1.0))
        self.own.grad = total
        self.optimizer.step()
        self.group.meet()

    # The optimizer's state as one device would have it, so that any plan can read any plan's checkpoint.

    def state(self) -> dict[str, Any]:
        """The whole state, a parameter at a time; all ranks call it, only the leader's is whole."""
        mine = self.optimizer.state_dict()
        whole: dict[int, dict[str, Any]] = {number: {} for number in range(len(self.parameters))}
        for key, value in mine["state"].get(0, {}).items():
            spread = isinstance(value, Tensor) and value.shape == self.own.shape
            stage = self.rows[0]
            if spread:
                stage[self.part].copy_(value)
                self.group.meet()
            for number in whole:
                whole[number][key] = self._view(stage, number).clone() if spread else value
            self.group.meet()
        groups = [{**group, "params": list(whole)} for group in mine["param_groups"]]
        return {"state": whole if mine["state"] else {}, "param_groups": groups}

    def load_state(self, state: dict[str, Any]) -> None:
        """Take this rank's part of a whole state."""
        mine: dict[str, Any] = {}
        for key in state["state"].get(0, {}):
            values = [state["state"][number][key] for number in range(len(self.parameters))]
            spread = [isinstance(value, Tensor) and value.dim() > 0 for value in values]
            if any(spread):
                row = torch.zeros_like(self.flat)
                for number, value in enumerate(values):
                    self._view(row, number).copy_(value)
                mine[key] = row[self.part].clone()
            else:
                mine[key] = values[0]
        groups = [{**group, "params": [0]} for group in state["param_groups"]]
        load_state(self.optimizer, {"state": {0: mine} if mine else {}, "param_groups": groups})


def _starts(parameters: Sequence[nn.Parameter]) -> tuple[list[int], int]:
    """Where each parameter begins in a row, and how long the row is."""
    starts, total = [], 0
    for parameter in parameters:
        starts.append(total)
        total += -(-parameter.numel() // ALIGNED) * ALIGNED
    return starts, total
