"""No randomness: a model that draws nothing at random, to be compared with itself."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from manyhands.compat import DropoutNd
from manyhands.engine.sharding.elementwise import RANDOM, name_of

DRAWN = 0.37  # what every random number is
DROPS = ("dropout", "alpha_dropout", "feature_alpha_dropout", "dropout1d", "dropout2d", "dropout3d")
LOWER = (torch.float32, torch.float16, torch.bfloat16)


class Still(TorchFunctionMode):
    """While it is entered, dropout drops nothing and random functions give one number.

    `lowered`: whether something went below float64. A mode is one thread's.
    """

    lowered = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = dict(kwargs or {}), name_of(func)
        if name in DROPS and len(args) < 2:
            kwargs["p"] = 0.0
        elif name in DROPS:
            args = (args[0], 0.0, *args[2:])
        elif kwargs.get("dropout_p"):
            kwargs["dropout_p"] = 0.0
        result = func(*args, **kwargs)
        if isinstance(result, Tensor):
            if name not in DROPS and (name in RANDOM or name in ("rand", "randn")):
                result = result.fill_(DRAWN) if result.is_floating_point() else result.zero_()
            elif result.dtype in LOWER:
                self.lowered = True
        return result


def hold_still(model: nn.Module) -> None:
    """No dropout by its layers; those inside torch's own see no mode."""
    for module in model.modules():
        if isinstance(module, DropoutNd):
            module.p = 0.0
        if isinstance(module, nn.RNNBase | nn.MultiheadAttention):
            module.dropout = 0.0
