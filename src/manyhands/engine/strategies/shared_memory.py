"""Shared memory: data parallelism through shared memory.

    weights   ┌───────── one copy, in which every rank's model lives ─────────┐
    row 0     │ gradients of rank 0                                           │
    row 1     │ gradients of rank 1                                           │
              └── rank 0 adds up and updates ──┴── rank 1 adds up and updates ┘

Backward puts each gradient into the rank's row; after a barrier every rank adds up its own part of all rows and
updates that part of the weights; after a second barrier all go on. Nothing is gathered, and the optimizer's state
is spread over the ranks by itself. To an optimizer that treats every element alike a rank's part is one parameter; to
one that goes by the norms of tensors (`by_tensor`) it is a parameter for each tensor of which it holds something. So it
is, too, from the first step on in which a parameter has no gradient on any rank: what is not used must not be moved by
weight decay or momentum.
"""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from manyhands.comm.backends.reduction import reduce_rows
from manyhands.comm.backends.shm import ShmGroup
from manyhands.comm.ranks.rank_group import Team
from manyhands.engine.modules.buffers import average, own_buffers
from manyhands.engine.parameters.flat_parameters import FlatParameters
from manyhands.engine.parameters.gradient_buffer import GradientBuffer
from manyhands.engine.parameters.sharded_norms import Of, use_norms
from manyhands.engine.strategies.single_process import SingleProcess
from manyhands.optim.factory import load_state
from manyhands.plan.tensor_layout import parts


class Shared(SingleProcess):
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
        self.flat, self.group, self.team = FlatParameters(model), group, team
        self.parameters = self.flat.parameters
        self.row = group.shared(self.flat.size, self.flat.dtype)[0]
        self.rows = group.shared(self.flat.size, self.flat.dtype)
        self.unused = group.shared(len(self.parameters), torch.uint8)  # by each rank in this step: 1
        self.part = parts(self.flat.size, team.world)[team.rank]
        self.make = make
        self._move_in()
        super().__init__(model, self._optimizer(by_tensor), clip)

    def _optimizer(self, by_tensor: bool) -> torch.optim.Optimizer:
        """One for this rank's part of the row."""
        self.by_tensor = by_tensor
        within = (self._within() if by_tensor else []) or [(Of(0, 1), self.part)]
        self.of, self.spans = [of for of, _ in within], [span for _, span in within]
        self.own = [nn.Parameter(self.row[span]) for span in self.spans]
        optimizer = self.make(self.own)
        wholes: dict[Tensor, Of] = dict(zip(self.own, self.of, strict=True))
        use_norms(optimizer, self.team, wholes, len(self.parameters))
        return optimizer

    def _step_by_tensor(self) -> None:
        """From now on; the gradients that lie where states are joined stay."""
        kept = self.rows[0].clone()
        self.group.meet()
        state = self.state()
        self.optimizer = self._optimizer(by_tensor=True)
        self.load_state(state)
        if self.team.is_leader:
            self.rows[0].copy_(kept)
        self.group.meet()

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
        if self.team.is_leader:
            self.flat.read(self.row)
        self.group.meet()
        self.flat.move_in(self.row)
        self.gradients = GradientBuffer(self.flat, self.rows[self.team.rank])

    def update(self) -> None:
        """Add up this rank's part of the gradients, and update this rank's part of the weights."""
        unused = self.gradients.complete()
        self.unused[self.team.rank].zero_()[list(unused)] = 1
        if self.noise is not None:
            self.noise.rank(self.rows[self.team.rank])
        self.group.meet()
        idle = torch.stack(self.unused).all(0)  # of no rank
        if not self.by_tensor and idle.any():
            self._step_by_tensor()
        mine = [row[self.part] for row in self.rows]
        total = mine[self.team.rank]
        reduce_rows(mine, [total])
        if self.noise is not None:
            self.noise.whole([total])
        if self.clip is not None:
            norm = self.team.sum(total.square().sum()).sqrt()
            total.mul_(torch.clamp(self.clip / (norm + 1e-6), max=1.0))
        for own, of, span in zip(self.own, self.of, self.spans, strict=True):
            own.grad = None if self.by_tensor and idle[of.number] else self.rows[self.team.rank][span]
        self.optimizer.step()
        self.group.meet()

    def sync_buffers(self) -> None:
        average(own_buffers(self.model))

    # The optimizer's state as one device would have it, so that any plan can read any plan's checkpoint.

    def state(self) -> dict[str, Any]:
        """The whole state, a parameter at a time; all ranks call it, only the leader's is whole."""
        mine = self.optimizer.state_dict()
        own = {of.number: mine["state"].get(number, {}) for number, of in enumerate(self.of)}
        # A parameter that has never had a gradient has no state.
        about = {
            str(number): [[key for key in values if _is_row(values[key])], _without_rows(values)]
            for number, values in own.items()
            if values
        }
        known: dict[str, Any] = {}
        for each in self.team.all_gather_json(about):
            known |= each
        if not known:
            return self.flat.joined({}, mine["param_groups"])
        if not self.by_tensor:
            known = dict.fromkeys(map(str, range(len(self.parameters))), next(iter(known.values())))
        keys, rows = next(iter(known.values()))[0], {}
        for key in keys:
            for number, span in enumerate(self.spans):
                values = mine["state"].get(number, {})
                self.rows[0][span] = values.get(key, 0)
            self.group.meet()
            rows[key] = self.rows[0].clone()
            self.group.meet()
        whole = self.flat.joined(rows, mine["param_groups"])
        whole["state"] = {
            int(number): {**whole["state"].get(int(number), {}), **deepcopy(same)}
            for number, (_, same) in known.items()
        }
        return whole

    def load_state(self, state: dict[str, Any]) -> None:
        """Take this rank's part of a whole state."""
        known, rows = state["state"], self.flat.cut(state)
        if known and len(known) < len(self.parameters) and not self.by_tensor:
            self.optimizer = self._optimizer(by_tensor=True)
        mine: dict[int, dict[str, Any]] = {}
        for number, (of, span) in enumerate(zip(self.of, self.spans, strict=True)):
            if of.number in known:
                own = {key: value[span].clone() for key, value in rows.items() if _is_row(value)}
                mine[number] = {**own, **deepcopy(_without_rows(known[of.number]))}  # each counts its own steps
        groups = [{**group, "params": list(range(len(self.own)))} for group in state["param_groups"]]
        load_state(self.optimizer, {"state": mine, "param_groups": groups})


def _is_row(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dim() > 0


def _without_rows(values: dict[str, Any]) -> dict[str, Any]:
    """What is the same for all elements."""
    return {key: value for key, value in values.items() if not _is_row(value)}
