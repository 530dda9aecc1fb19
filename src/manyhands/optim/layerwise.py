"""Layerwise: optimizers whose layers each go as far in a step as the norm of their weights allows.

    ratio = |w| / |u|    where both are above 0, else 1

u is what would change the layer; LARS and LAMB differ in it. Biases and the weights of norms, which have one dimension,
go without a ratio and are not decayed.
"""

import math
import os
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from importlib.util import find_spec
from shutil import which
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from manyhands.compat import foreach_norm

SHARED = 1 << 21  # elements of a layer that several threads work on together

Slot = tuple[Tensor, ...]  # a weight, its gradient and its state
Group = dict[str, Any]


class Parts(Protocol):
    """Of what a rank's parameters are parts, where it does not have whole tensors."""

    def dims(self, parameter: Tensor) -> int:
        """Dimensions of the whole tensor."""

    def add_up(self, parameters: Sequence[Tensor], squares: Tensor) -> Tensor:
        """Sums of squares of the whole tensors, from a column for each part; all ranks call it together."""


# Of tensors, and of the numbers in compiled passes, which numba keeps by the date of cpu_kernels.py alone: touch that,
# too.
def ratio(weights: Any, updates: Any) -> Any:
    """How far layers go, by norms."""
    known = (weights > 0) * (updates > 0) * 1.0
    return (weights * known + 1.0 - known) / (updates * known + 1.0 - known)


class Trusting(torch.optim.Optimizer):
    """What LARS and LAMB have in common; each group has `lr`, `weight_decay` and `fused` (by passes or blocks)."""

    parts: Parts | None = None
    alone = False  # whether nobody else writes the weights, so that what was known of them after a step still holds

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            learning = [each for each in group["params"] if each.grad is not None]
            how = {**group, "by": walkers(learning) if group["fused"] else None}
            if how["by"] == "passes" and self.parts is None:
                most = math.inf if torch.get_num_threads() == 1 else SHARED
                self._whole(how, [each for each in learning if each.numel() < most])
                learning = [each for each in learning if each.numel() >= most]
            for free in by_device(each for each in learning if self._dims(each) < 2):
                self._go(how, self._slots(how, free), None, [])
            trusted = [each for each in learning if self._dims(each) > 1]
            for some in self._together(trusted):
                slots = self._slots(how, some)
                squares, updates = self._measured(how, slots)
                if self.parts is not None:
                    squares = self.parts.add_up(some, squares)
                if some:
                    self._go(how, slots, self._ratios(how, *squares.sqrt()), updates)
        return loss

    def _dims(self, parameter: Tensor) -> int:
        return parameter.dim() if self.parts is None else self.parts.dims(parameter)

    def _whole(self, how: Group, parameters: Sequence[Tensor]) -> None:
        """Measure and update each layer before the next, while it is in the cache; by one thread each."""
        slots = self._slots(how, parameters)
        if slots:
            squares = self._pass(how, slots, [each.dim() > 1 for each in parameters])
            increment_version([slot[0] for slot in slots])
            self._note(slots, squares)

    def _together(self, parameters: list[Tensor]) -> Iterable[list[Tensor]]:
        """Layers that are measured, and then updated, at a time."""
        if self.parts is not None:  # ranks add up once, also one that has nothing to add
            return [parameters]
        return by_device(parameters)

    def _slots(self, how: Group, parameters: Sequence[Tensor]) -> list[Slot]:
        """What this rank has of each parameter."""
        if how["by"]:
            return [(each, laid_out(each.grad, each), *self._own(each)) for each in parameters]
        parts = [(each, each.grad, *self._own(each)) for each in parameters]
        return [tuple(local(part) for part in slot if part is not None) for slot in parts]

    def _kept(self, parameter: Tensor, key: str) -> Tensor:
        """A state that lies in memory as its parameter does; nothing to begin with."""
        state = self.state[parameter]
        if key not in state:
            state[key] = torch.zeros_like(parameter)
        elif state[key].stride() != parameter.stride():  # as it was loaded
            state[key] = torch.empty_like(parameter).copy_(state[key])
        return state[key]  # type: ignore[no-any-return]

    def _own(self, parameter: Tensor) -> Slot:
        """The state of a parameter."""
        raise NotImplementedError

    def _pass(self, how: Group, slots: Sequence[Slot], trusted: Sequence[bool]) -> Tensor:
        """A whole step, layer by layer, of which some have a ratio and a decay; tells sums of each."""
        raise NotImplementedError

    def _note(self, slots: Sequence[Slot], told: Tensor) -> None:
        """Remember what a pass has told of the weights that it wrote."""

    def _measured(self, how: Group, slots: Sequence[Slot]) -> tuple[Tensor, list[Tensor]]:
        """Two rows of sums of squares, a column a layer: of its weights, and of what changes it; and that, if kept."""
        raise NotImplementedError

    def _ratios(self, how: Group, weights: Tensor, updates: Tensor) -> Tensor:
        """The trust ratio of each layer, by these norms."""
        raise NotImplementedError

    def _go(self, how: Group, slots: Sequence[Slot], ratios: Tensor | None, updates: list[Tensor]) -> None:
        """Update the weights; those without a ratio are not decayed."""
        raise NotImplementedError


def local(tensor: Tensor) -> Tensor:
    """What this rank has of a tensor that is spread over ranks."""
    part: Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return part


def walkers(parameters: Sequence[Tensor]) -> str | None:
    """What can walk over them, passes or blocks: over rows of one type, without gaps in memory, on one device."""
    kinds, devices = {each.dtype for each in parameters}, {each.device for each in parameters}
    if len(kinds) != 1 or len(devices) != 1:
        return None
    if not all(each.is_contiguous() or each.is_contiguous(memory_format=_last(each)) for each in parameters):
        return None
    (kind,), (device,) = kinds, devices
    if device.type == "cpu":
        return "passes" if kind in (torch.float32, torch.float64) else None
    return "blocks" if kind == torch.float32 and _has_blocks(device) else None


@cache
def _has_blocks(device: torch.device) -> bool:
    """Triton comes with torch for CUDA; it wants a GPU that is not too old, and a compiler for what starts kernels."""
    if device.type != "cuda" or find_spec("triton") is None:
        return False
    compilers = (os.environ.get("CC"), "gcc", "clang")
    return torch.cuda.get_device_capability(device) >= (7, 0) and any(each and which(each) for each in compilers)


def _last(tensor: Tensor) -> torch.memory_format:
    return torch.channels_last if tensor.dim() == 4 else torch.contiguous_format


def laid_out(gradient: Tensor | None, like: Tensor) -> Tensor:
    """A gradient whose elements lie in memory in the order of another's, and are of its type."""
    assert gradient is not None
    same = gradient.stride() == like.stride() and gradient.dtype == like.dtype
    return gradient if same else torch.empty_like(like).copy_(gradient)


def rates_of(rate: float | Tensor, ratios: Tensor | None, weights: Sequence[Tensor]) -> Tensor:
    """A rate for each layer, in fp32 on its device."""
    each = torch.ones(len(weights), device=weights[0].device) if ratios is None else ratios
    return (each * rate).float()


def squares_of(tensors: Sequence[Tensor]) -> Tensor:
    """The sum of squares of each, on their device; of narrow types in fp32."""
    if not tensors:
        return torch.zeros(0, dtype=torch.float64)
    wide = None if tensors[0].dtype in (torch.float32, torch.float64) else torch.float32
    return torch.stack(foreach_norm(list(tensors), 2, wide)).double().square()


def by_device(parameters: Iterable[Tensor]) -> Iterable[list[Tensor]]:
    found: dict[torch.device, list[Tensor]] = {}
    for each in parameters:
        found.setdefault(each.device, []).append(each)
    return found.values()
