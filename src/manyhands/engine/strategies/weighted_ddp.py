"""Weighted ddp: a user's own model over ranks, by DistributedDataParallel, with gradients as those of one device.

    loss on rank r = mean over its n_r samples of all N          W ranks

    backward    the gradient of the model's output · n_r W / N   so that all samples count alike where ranks meet
                parameters: sum over ranks · 1 / W               inside backward (batch norm), and in the sum

A term of the loss that is a function of the weights alone stays as it is.
"""

import contextlib
import re
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from manyhands.comm.comm_hook import Compression
from manyhands.comm.ranks.rank_group import Team
from manyhands.compat import tree_map_only
from manyhands.engine.modules.sync_batchnorm import GlobalBatchNorm, over_ranks
from manyhands.engine.strategies.sharded_loader import CURRENT_SHARE
from manyhands.errors import ModelError
from manyhands.plan.plan import Plan

WITHOUT_GRADIENT = re.compile(r"did not receive grad for rank \d+: ([\d ,]+)")


class WeightedDDP(DistributedDataParallel):
    """One rank's copy, with the first rank's weights to begin with; `.module` is the plain model."""

    def __init__(self, model: nn.Module, plan: Plan, team: Team) -> None:
        device = next(model.parameters()).device
        # The references keep all that is torch's default.
        own = not plan.is_baseline
        where = [device.index] if device.type == "cuda" else None
        super().__init__(model, device_ids=where, gradient_as_bucket_view=own)
        self.team, self.narrow = team, plan.precision == "bf16"
        self.norms: list[GlobalBatchNorm] = over_ranks(model, team) if own else []
        self.compression = Compression(plan.compress or "none", model) if own else None
        if self.compression:
            self.compression.weight = 1 / team.world
            self.register_comm_hook(self.compression, Compression.hook)
            # Those of batch norm over all ranks are the same anyway. (As an argument, torch 2.13 warns of it.)
            same = {buffer for norm in self.norms for buffer in norm.buffers()}
            self.broadcast_buffers = not same.issuperset(model.buffers())

    def forward(self, *inputs: Any, **keywords: Any) -> Any:
        for norm in self.norms:
            norm.muted = CURRENT_SHARE.is_stand_in
        try:
            # Only where the plan says so: the script may have an autocast of its own around.
            with torch.autocast(self.device.type, torch.bfloat16) if self.narrow else contextlib.nullcontext():
                result = super().forward(*inputs, **keywords)  # type: ignore[no-untyped-call]
        except RuntimeError as error:
            if found := WITHOUT_GRADIENT.search(str(error)):
                raise self._unused(found[1]) from error
            raise
        weight = CURRENT_SHARE.weight(self.team.world) * self.team.world
        if self.compression is None or weight == 1 or not (self.training and torch.is_grad_enabled()):
            return result
        return tree_map_only(Tensor, lambda tensor: _weighed(tensor, weight), result)

    def _unused(self, numbers: str) -> ModelError:
        """In place of torch's error, which comes a step late and has numbers only."""
        trained = [name for name, parameter in self.module.named_parameters() if parameter.requires_grad]
        names = ", ".join(trained[int(number)] for number in re.findall(r"\d+", numbers))
        return ModelError(
            f"parameters without a gradient in the last step: {names}. The loss must depend on all of them in every "
            "step: freeze those that it does not use with requires_grad_(False)"
        )


class _Weigh(torch.autograd.Function):
    """The tensor itself, whose gradient weighs more or less."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, weight: float) -> Tensor:
        ctx.weight = weight
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient * ctx.weight, None


def _weighed(tensor: Tensor, weight: float) -> Tensor:
    result: Tensor = _Weigh.apply(tensor, weight) if tensor.requires_grad else tensor  # type: ignore[no-untyped-call]
    return result
