"""Shared: data parallelism through shared memory.

    weights   ┌───────── one copy, in which every rank's model lives ─────────┐
    row 0     │ gradients of rank 0                                           │
    row 1     │ gradients of rank 1                                           │
              └── rank 0 adds up and updates ──┴── rank 1 adds up and updates ┘

Backward puts each gradient into the rank's row; after a barrier every rank adds up its own part of all rows and
updates that part of the weights; after a second barrier all go on. Nothing is gathered, and the optimizer's state
is spread over the ranks by itself. To an optimizer that treats every element alike a rank's part is one parameter; to
one that goes by the norms of tensors (`by_tensor`) it is a parameter for each tensor of which it holds something.
"""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from manyhands.comm.reduction import parts, reduce_rows
from manyhands.comm.shm import ShmGroup
from manyhands.engine.exchange import Alone
from manyhands.engine.flat import Flat, Gradients
from manyhands.engine.norms import Of, use_norms
from manyhands.engine.team import Team
from manyhands.optim.optimizer import load_state


class Shared(Alone):
    """One rank's side of it."""

    def __init__(
        self,
        model: nn.Module,
        make: Callable[[list[nn.Parameter]], torch.optim.Optimizer],
        clip: float | None,
        group: ShmGroup,
        team: Team,
        *,
        by_tensor: bool = False,
    ) -> None:
        self.flat, self.group, self.team = Flat(model), group, team
        self.parameters = self.flat.parameters
        self.row = group.shared(self.flat.size, self.flat.dtype)[0]
        self.rows = group.shared(self.flat.size, self.flat.dtype)
        self.part = parts(self.flat.size, team.world)[team.rank]
        self._move_in()
        within = (self._within() if by_tensor else []) or [(Of(0, 1), self.part)]
        self.spans = [span for _, span in within]
        self.own = [nn.Parameter(self.row[span]) for span in self.spans]
        super().__init__(model, make(self.own), clip)
        wholes: dict[Tensor, Of] = {own: of for own, (of, _) in zip(self.own, within, strict=True)}
        use_norms(self.optimizer, team, wholes, len(self.parameters))

    def _within(self) -> list[tuple[Of, slice]]:
        """Each parameter of which this rank's part has something, and where in the row that lies."""
        found = []
        for number, (start, parameter) in enumerate(zip(self.flat.starts, self.parameters, strict=True)):
            begin, end = max(start, self.part.start), min(start + parameter.numel(), self.part.stop)
            if begin < end:
                found.append((Of(number, parameter.dim()), slice(begin, end)))
        return found

    def _move_in(self) -> None:
        """Let the parameters be views of the one copy, and their gradients go to this rank's row."""
        if self.team.leads:
            self.flat.read(self.row)
        self.group.meet()
        self.flat.move_in(self.row)
        self.gradients = Gradients(self.flat, self.rows[self.team.rank])

    def update(self) -> None:
        """Add up this rank's part of the gradients, and update this rank's part of the weights."""
        self.gradients.complete()
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
        for own, span in zip(self.own, self.spans, strict=True):
            own.grad = self.rows[self.team.rank][span]
        self.optimizer.step()
        self.group.meet()

    # The optimizer's state as one device would have it, so that any plan can read any plan's checkpoint.

    def state(self) -> dict[str, Any]:
        """The whole state, a parameter at a time; all ranks call it, only the leader's is whole."""
        mine, rows = self.optimizer.state_dict(), {}
        for key, value in mine["state"].get(0, {}).items():
            rows[key] = value
            if isinstance(value, Tensor) and value.shape == self.own[0].shape:
                for number, span in enumerate(self.spans):
                    self.rows[0][span].copy_(mine["state"][number][key])
                self.group.meet()
                rows[key] = self.rows[0].clone()
            self.group.meet()
        return self.flat.joined(rows, mine["param_groups"])

    def load_state(self, state: dict[str, Any]) -> None:
        """Take this rank's part of a whole state."""
        mine: dict[int, dict[str, Any]] = {number: {} for number in range(len(self.own))}
        for key, value in self.flat.cut(state).items():
            spread = isinstance(value, Tensor) and value.dim() > 0
            for number, span in enumerate(self.spans):
                mine[number][key] = value[span].clone() if spread else deepcopy(value)  # each counts its own steps
        groups = [{**group, "params": list(mine)} for group in state["param_groups"]]
        load_state(self.optimizer, {"state": mine if mine[0] else {}, "param_groups": groups})
