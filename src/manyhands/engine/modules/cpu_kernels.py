"""Faster drop-ins for layers that PyTorch runs slowly on CPU; the same function, the same parameters.

Both were found in the profile of the MNIST convnet (2 cores, batch 256, bf16), where together they took a
third of the step; benchmarks/single_device.py shows the step with and without them.
"""

from typing import Any

import torch
from torch import Tensor, nn


class _Dropout(torch.autograd.Function):
    """Dropout with 8 masks, or 4, drawn from one 64-bit random number.

    torch draws a double for every element, on one thread: 20 ms for 2.4 million, here 4 ms.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, rate: float) -> Tensor:
        kind = _kind(rate)
        count, least = 256**kind.itemsize, torch.iinfo(kind).min
        dropped = round(rate * count)
        words = torch.empty(-(-x.numel() * kind.itemsize // 8), dtype=torch.int64).random_(-(2**63), None)
        mask = words.view(kind)[: x.numel()] >= least + dropped
        # Laid out as x is, so that `where` walks both in memory order.
        mask = mask.view(x.shape) if x.is_contiguous() else mask.as_strided(x.shape, x.stride())
        ctx.save_for_backward(mask)
        ctx.scale = count / (count - dropped)
        return torch.where(mask, x * ctx.scale, 0)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (mask,) = ctx.saved_tensors
        return torch.where(mask, gradients[0] * ctx.scale, 0), None


def _kind(rate: float) -> torch.dtype:
    """Of the numbers that are compared: a byte where the rate is a multiple of 1/256, such as 0.25 and 0.5."""
    return torch.uint8 if (256 * rate).is_integer() else torch.int16


class Dropout(nn.Dropout):
    """nn.Dropout; other rates than multiples of 1/256 are the nearest multiple of 1/65,536, and scaled by that."""

    def forward(self, input: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return input
        if not (input.is_contiguous() or input.is_contiguous(memory_format=torch.channels_last)):
            return super().forward(input)
        result: Tensor = _Dropout.apply(input, float(self.p))  # type: ignore[no-untyped-call]
        return result


def _channels_last(gradient: Tensor) -> Tensor:
    return gradient.contiguous(memory_format=torch.channels_last)


class MaxPool2d(nn.MaxPool2d):
    """nn.MaxPool2d whose backward pass gets its gradient in the layout of its output.

    Behind a flatten the gradient of a channels-last pool arrives contiguous, and torch's backward then walks
    it against the grain: 11 ms for 256x64x12x12 in bf16, 3 ms after a copy of 0.4 ms.
    """

    def forward(self, input: Tensor) -> Tensor:
        output: Tensor = super().forward(input)
        if output.requires_grad and output.is_contiguous(memory_format=torch.channels_last):
            output.register_hook(_channels_last)  # type: ignore[no-untyped-call]
        return output


def fits(layer: nn.Module) -> bool:
    """Whether there is a drop-in for exactly this layer."""
    if type(layer) is nn.Dropout:
        return not layer.inplace and (layer.p == 0 or 0 < round(65536 * layer.p) < 65536)
    return type(layer) is nn.MaxPool2d and not layer.return_indices


def use_own(model: nn.Module) -> int:
    """Replace, in place, every layer that has a drop-in; returns how many."""
    swaps: dict[type[nn.Module], type[nn.Module]] = {nn.Dropout: Dropout, nn.MaxPool2d: MaxPool2d}
    layers = [layer for layer in model.modules() if fits(layer)]
    for layer in layers:
        layer.__class__ = swaps[type(layer)]  # keeps names, hooks and settings as they are
    return len(layers)
