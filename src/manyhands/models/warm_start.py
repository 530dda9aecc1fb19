"""Warm start: what fits is taken, and what is frozen stays."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn

from manyhands.errors import ModelError

SHOWN = 5


@dataclass(frozen=True)
class Transfer:
    """What became of each tensor, of the given ones and of the model's own."""

    loaded: tuple[str, ...]
    skipped: tuple[tuple[str, str], ...]  # (name, why)


def init_from(model: nn.Module, tensors: Mapping[str, Tensor]) -> Transfer:
    """Copy into the model every tensor that fits by name and shape; a ModelError when none does."""
    own = model.state_dict()
    loaded: list[str] = []
    skipped: list[tuple[str, str]] = []
    with torch.no_grad():
        for name, tensor in tensors.items():
            if name not in own:
                skipped.append((name, "not in the model"))
            elif own[name].shape != tensor.shape:
                skipped.append((name, f"{_shape(tensor)} given, {_shape(own[name])} in the model"))
            else:
                own[name].copy_(tensor)
                loaded.append(name)
    skipped += [(name, "not given: keeps its fresh weights") for name in own if name not in tensors]
    if not loaded:
        raise ModelError(
            f"none of the {len(tensors)} tensors ({_some(tensors)}) fits by name and shape: "
            f"the model has {_some(own)}; rename them or choose the model that they came from"
        )
    return Transfer(tuple(loaded), tuple(skipped))


def freeze(model: nn.Module, patterns: Sequence[str]) -> list[str]:
    """Take the parameters whose names match any pattern (as file names do: conv*, *.bias) out of training."""
    parameters = dict(model.named_parameters())
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in parameters):
            raise ModelError(f"freeze pattern '{pattern}' matches no parameter: the model has {_some(parameters)}")
    frozen = [name for name in parameters if any(fnmatchcase(name, pattern) for pattern in patterns)]
    if len(frozen) == len(parameters) and frozen:
        raise ModelError(f"freeze={','.join(patterns)} leaves nothing to train: freeze fewer parameters")
    for name in frozen:
        parameters[name].requires_grad_(False)
    return frozen


def _shape(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "scalar"


def _some(names: Iterable[str]) -> str:
    """The first few of many names."""
    every = list(names)
    return ", ".join(every[:SHOWN]) + (f" and {len(every) - SHOWN} more" if len(every) > SHOWN else "")
