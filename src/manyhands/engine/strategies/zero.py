"""ZeRO stage 1: each rank keeps the optimizer state of some of the parameters."""

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch.distributed.optim import ZeroRedundancyOptimizer
import inspect
from functools import partial

from manyhands.errors import PlanError


def zero(parameters: list[Any], make: Callable[..., torch.optim.Optimizer]) -> "ZeroRedundancyOptimizer":
    """An optimizer of which each rank keeps a part of the state, made of parameters or groups of them."""
    with warnings.catch_warnings():  # of torch about itself: it still scripts its functional optimizers
        warnings.simplefilter("ignore", DeprecationWarning)
        from torch.distributed.optim import ZeroRedundancyOptimizer  # a second, for this alone
    # It takes a class and its arguments; a function that makes the optimizer serves as both.
    return ZeroRedundancyOptimizer(parameters, make)  # type: ignore[arg-type]


def sharded(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """An optimizer like the given one, but for its state, of which each rank keeps a part (ZeRO-1)."""
    if optimizer.state:
        raise PlanError("plan option shard=optimizer: the optimizer has a state: load it after parallelize")
    kind = type(optimizer)
    taken = inspect.signature(kind).parameters  # AdamW has a default that it does not take
    settings = {name: value for name, value in optimizer.defaults.items() if name in taken}
    return zero(optimizer.param_groups, partial(kind, **settings))
