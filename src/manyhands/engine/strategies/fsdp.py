"""FSDP: every rank has a part of each weight, its gradient and its state (FSDP2).

A layer's weights are gathered before its forward and its backward pass, and freed after; its gradients are reduced
to the ranks that own them while the backward pass goes on.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from manyhands.comm.ranks.rank_group import Team
from manyhands.engine.modules.buffers import average, own_buffers
from manyhands.engine.parameters.sharded_norms import Of, use_norms
from manyhands.engine.strategies.ddp import Make
from manyhands.engine.strategies.single_process import SingleProcess
from manyhands.optim.factory import load_state


class Sharded(SingleProcess):
    """One rank's side of it."""

    def __init__(self, model: nn.Module, make: Make, clip: float | None, team: Team) -> None:
        # Said, for on a machine with GPUs torch would take these, even for a model on the CPU.
        mesh = init_device_mesh(next(model.parameters()).device.type, (team.world,))
        for layer in _units(model):
            fully_shard(layer, mesh=mesh)
        self.fsdp: FSDPModule = fully_shard(model, mesh=mesh)
        self.scale = float(team.world)  # it averages
        trained = [each for each in model.parameters() if each.requires_grad]
        super().__init__(model, make(trained), clip)
        parts: dict[Tensor, Of] = {each: Of(number, each.dim()) for number, each in enumerate(trained)}
        use_norms(self.optimizer, team, parts, len(parts))

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        self.fsdp.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            self.fsdp.set_requires_gradient_sync(True)

    def sync_buffers(self) -> None:
        average(own_buffers(self.model))

    def weights(self) -> dict[str, Tensor]:
        return {name: _whole(tensor) for name, tensor in self.model.state_dict().items()}

    def load_weights(self, tensors: dict[str, Tensor]) -> None:
        own = self.model.state_dict()
        self.model.load_state_dict({name: _like(tensor, own[name]) for name, tensor in tensors.items()})

    def state(self) -> dict[str, Any]:
        mine = self.optimizer.state_dict()
        state = {
            number: {key: _whole(value) for key, value in values.items()} for number, values in mine["state"].items()
        }
        return {**mine, "state": state}

    def load_state(self, state: dict[str, Any]) -> None:
        parameters = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
        parts = {
            number: {key: _like(value, parameters[number]) for key, value in values.items()}
            for number, values in state["state"].items()
        }
        load_state(self.optimizer, {**state, "state": parts})


def _units(model: nn.Module) -> Iterator[nn.Module]:
    """The layers whose weights are gathered together: the parts of a model, containers opened."""
    for child in model.children():
        if isinstance(child, nn.Sequential | nn.ModuleList):
            yield from _units(child)
        elif any(True for _ in child.parameters()):
            yield child


def _whole(value: Any) -> Any:
    return value.full_tensor() if isinstance(value, DTensor) else value


def _like(value: Any, pattern: Any) -> Any:
    """This rank's part of a whole tensor, split as the pattern is."""
    if not isinstance(pattern, DTensor) or not isinstance(value, Tensor) or value.shape != pattern.shape:
        return value
    # Every rank has read the whole: nothing needs to be sent.
    return distribute_tensor(value, pattern.device_mesh, pattern.placements, src_data_rank=None)
