"""DDP: every rank has the whole model; DistributedDataParallel adds gradients up while backward runs.

With `shard=optimizer` each rank keeps the optimizer's state of some parameters only (ZeRO-1), steps those, and sends
them to the others.
"""

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from manyhands.comm.comm_hook import Compression
from manyhands.comm.ranks.rank_group import Team
from manyhands.engine.modules.buffers import average, own_buffers, take_first
from manyhands.engine.parameters.gradient_noise import Noise
from manyhands.engine.strategies.single_process import SingleProcess
from manyhands.optim.factory import lay_out

if TYPE_CHECKING:
    from torch.distributed.optim import ZeroRedundancyOptimizer
from manyhands.engine.strategies.zero import zero

Make = Callable[[list[nn.Parameter]], torch.optim.Optimizer]


class Replicated(SingleProcess):
    """One rank's side of it."""

    def __init__(
        self,
        model: nn.Module,
        make: Make,
        clip: float | None,
        team: Team,
        *,
        compress: str = "none",
        shard: bool = False,
        usual: bool = False,
        idle: bool = False,
    ) -> None:
        """`usual`: as the usual script has it, all options left at torch's defaults.

        `idle`: there are parameters of which the loss does not depend, for which torch must look in every step.
        """
        self.zero: ZeroRedundancyOptimizer | None = None
        self.team, self.compression = team, None if usual else Compression(compress, model)
        device = next(model.parameters()).device
        where = [device.index] if device.type == "cuda" else None
        if usual:
            self.ddp = DistributedDataParallel(model, device_ids=where, find_unused_parameters=idle)
            self.scale = float(team.world)  # it averages
        else:
            self.ddp = DistributedDataParallel(
                model, device_ids=where, gradient_as_bucket_view=True, find_unused_parameters=idle
            )
            # The same on all ranks anyway: batch norm sees the whole batch. (As an argument, torch 2.13 warns of it.)
            self.ddp.broadcast_buffers = False
            assert self.compression is not None
            self.ddp.register_comm_hook(self.compression, Compression.hook)
        trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
        if shard:
            self.zero = zero(trainable, make)
        super().__init__(model, self.zero or make(trainable), clip)

    def forward(self, inputs: Tensor) -> Tensor:
        result: Tensor = self.ddp(inputs)
        return result

    def alone(self) -> contextlib.AbstractContextManager[object]:
        return self.ddp.no_sync()

    def sync_buffers(self) -> None:
        if self.compression is None:  # as the usual script, which saves the first rank's
            take_first(self.model.buffers())
        else:
            average(own_buffers(self.model))

    def watch(self, noise: Noise) -> None:
        assert self.compression is not None
        super().watch(noise)
        self.compression.watch = noise.rank

    def state(self) -> dict[str, Any]:
        if self.zero is None:
            return super().state()
        self.zero.consolidate_state_dict(to=0)
        return self.zero.state_dict() if self.team.is_leader else {"state": {}, "param_groups": []}

    def load_state(self, state: dict[str, Any]) -> None:
        super().load_state(state)
        if self.zero is not None:
            lay_out(self.zero.optim)

    def rank_state(self) -> dict[str, Tensor]:
        return self.compression.state_dict() if self.compression else {}

    def load_rank_state(self, tensors: dict[str, Tensor]) -> None:
        if self.compression:
            self.compression.load_state_dict(tensors)

    def bytes_sent(self) -> tuple[int, int] | None:
        return (self.compression.sent_bytes, self.compression.plain_bytes) if self.compression else None
