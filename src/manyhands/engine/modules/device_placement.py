"""Device placement: layers on another device than the rest of the model, such as pooling on the CPU beside a GPU.

    convolution (cuda) ──→ [to cpu] pooling (cpu) [to cuda] ──→ convolution (cuda)

What such a layer takes is brought to its device, and what it makes is brought back: code between layers finds all that
it works on in one place, and gradients go the same ways.
"""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn

from manyhands.compat import tree_map_only
from manyhands.errors import PlanError


def place(model: nn.Module, places: Sequence[tuple[str, str]], home: torch.device) -> None:
    """Put layers by pattern of their names on a device; later patterns win. The model is on `home` already."""
    leaves = {name: module for name, module in model.named_modules() if not any(module.children())}
    chosen: dict[str, str] = {}
    for pattern, device in places:
        matching = [name for name in leaves if fnmatchcase(name, pattern)]
        if not matching:
            known = ", ".join(list(leaves)[:8])
            raise PlanError(f"places '{pattern}' match no layer; the model's layers are {known} …")
        chosen |= dict.fromkeys(matching, device)
    for name, device in chosen.items():
        if torch.device(device).type != home.type:
            _move(leaves[name], torch.device(device), home)


def _move(module: nn.Module, there: torch.device, home: torch.device) -> None:
    module.to(there)
    run = module.forward

    def forward(*given: Any, **named: Any) -> Any:
        given, named = tree_map_only(Tensor, lambda each: each.to(there), (given, named))
        return tree_map_only(Tensor, lambda each: each.to(home), run(*given, **named))

    module.forward = forward
