"""Split layers: the backward pass of a layer in two halves, of which the second can wait.

    whole    | input 3, weights 3 | input 2, weights 2 | weights 1 |      a model of three layers
    apart    | input 3 | input 2 |  …  | weights 3 | weights 2 | weights 1 |

Only the gradient of a layer's input is needed by the layers before it. That of its weights is needed by the update
alone, so it can fill a pipeline's bubbles, or go on beside (engine.modules.weight_grad_store).

Weights whose gradients come later get them in `.grad` as autograd would have left them there, but hooks on the weights
see nothing: DistributedDataParallel would exchange gradients that are not there yet.
"""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from manyhands.compat import ConvNd, ConvTransposeNd
from manyhands.engine.modules.weight_grad_store import Made, WeightGradStore, overlapped_wgrad


class _Kind(Protocol):
    """What a layer computes, and the two halves of its backward pass."""

    def forward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor: ...

    def to_input(self, gradient: Tensor, x: Tensor, weight: Tensor) -> Tensor: ...

    def to_weights(self, gradient: Tensor, x: Tensor, weight: Tensor, bias: bool) -> tuple[Tensor, Tensor | None]: ...


class _Dense:
    def forward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return functional.linear(x, weight, bias)

    def to_input(self, gradient: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        return gradient.reshape(-1, weight.shape[0]).mm(weight).view(x.shape)

    def to_weights(self, gradient: Tensor, x: Tensor, weight: Tensor, bias: bool) -> tuple[Tensor, Tensor | None]:
        outputs, inputs = weight.shape
        rows = gradient.reshape(-1, outputs)
        return rows.t().mm(x.reshape(-1, inputs)), rows.sum(0) if bias else None


@dataclass(frozen=True)
class _Convolution:
    """`told`: stride, padding, dilation, whether transposed, output padding, groups."""

    told: tuple[Any, ...]

    def forward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return torch.convolution(x, weight, bias, *self.told)

    def to_input(self, gradient: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        to_input: Tensor = self._backward(gradient, x, weight, (True, False, False))[0]
        return to_input

    def to_weights(self, gradient: Tensor, x: Tensor, weight: Tensor, bias: bool) -> tuple[Tensor, Tensor | None]:
        _, weights, biases = self._backward(gradient, x, weight, (False, True, bias))
        return weights, biases

    def _backward(self, gradient: Tensor, x: Tensor, weight: Tensor, wanted: tuple[bool, bool, bool]) -> Any:
        return torch.ops.aten.convolution_backward(gradient, x, weight, [gradient.shape[1]], *self.told, list(wanted))


@dataclass(frozen=True)
class _Table:
    """An embedding, whose input has no gradient."""

    padding: int
    by_frequency: bool

    def forward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return torch.embedding(weight, x, self.padding, self.by_frequency)

    def to_input(self, gradient: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        raise NotImplementedError

    def to_weights(self, gradient: Tensor, x: Tensor, weight: Tensor, bias: bool) -> tuple[Tensor, Tensor | None]:
        rows = torch.ops.aten.embedding_dense_backward(gradient, x, len(weight), self.padding, self.by_frequency)
        return rows, None


class _Apart(torch.autograd.Function):
    """Gives back the gradient of the input, and leaves those of the weights for later."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        kind: _Kind,
        later: WeightGradStore,
        low: torch.dtype | None,
    ) -> Tensor:
        used, added = (each if each is None or low is None else each.to(low) for each in (weight, bias))
        assert used is not None
        ctx.save_for_backward(x, used)
        ctx.weight, ctx.bias, ctx.kind, ctx.later = weight, bias, kind, later
        return kind.forward(x, used, added)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,), (x, used) = gradients, ctx.saved_tensors
        weight, bias, kind = ctx.weight, ctx.bias, ctx.kind
        to_input, to_weight, to_bias = ctx.needs_input_grad[:3]

        def work() -> Made:
            with torch.no_grad():
                for_weight, for_bias = kind.to_weights(gradient, x, used, to_bias)
            made = [(weight, for_weight)] if to_weight else []
            return [*made, (bias, for_bias)] if to_bias else made

        ctx.later.add(work)
        return kind.to_input(gradient, x, used) if to_input else None, *[None] * 5


def defer(module: nn.Module, later: WeightGradStore) -> bool:
    """Leave a layer's weight gradients to `later`; whether it is a layer whose can wait.

    Call it before the layer is cut (engine.sharding.sharded_layer): weights are read at each call, so they may become
    smaller.
    """
    assert "forward" not in vars(module), "its forward is not its own any more"
    if not _can_wait(module):
        return False
    whole = module.forward

    def forward(*given: Any, **named: Any) -> Tensor:
        weights = [each for each in (module.weight, getattr(module, "bias", None)) if each is not None]
        usual = torch.is_grad_enabled() and len(given) == 1 and not named
        # A weight that is itself computed (by a parametrization) has no gradient of its own.
        learns = any(each.requires_grad for each in weights) and all(each.is_leaf for each in weights)
        if not usual or not learns or (isinstance(module, ConvNd) and given[0].dim() != module.weight.dim()):
            return whole(*given, **named)  # type: ignore[no-any-return]
        kind, x = _kind(module, *given)
        low = _autocast(x)
        both = (*weights, *[None] * (2 - len(weights)))
        return _Apart.apply(x if low is None else x.to(low), *both, kind, later, low)  # type: ignore[no-any-return, no-untyped-call]

    module.forward = forward
    return True


def _can_wait(module: nn.Module) -> bool:
    """Whether it computes just what its kind does; a subclass may have a forward of its own."""
    if isinstance(module, nn.Embedding):
        return type(module).forward is nn.Embedding.forward and module.max_norm is None and not module.sparse
    return type(module).forward in WAITING


def _kind(module: nn.Module, x: Tensor) -> tuple[_Kind, Tensor]:
    """What the layer does, and of what: padding that is no plain number of zeros goes before it."""
    if isinstance(module, nn.Embedding):
        return _Table(-1 if module.padding_idx is None else module.padding_idx, module.scale_grad_by_freq), x
    if not isinstance(module, ConvNd):
        return _Dense(), x
    padding: Any = module.padding
    if isinstance(padding, str) or module.padding_mode != "zeros":
        mode = "constant" if module.padding_mode == "zeros" else module.padding_mode
        x = functional.pad(x, module._reversed_padding_repeated_twice, mode)
        padding = (0,) * len(module.kernel_size)
    transposed = isinstance(module, ConvTransposeNd)
    more = (module.dilation, transposed, module.output_padding, module.groups)
    return _Convolution((module.stride, padding, *more)), x


def _autocast(x: Tensor) -> torch.dtype | None:
    """The type in which autocast would have it computed."""
    kind = x.device.type
    if torch.is_autocast_enabled(kind) and x.is_floating_point() and x.dtype != torch.float64:
        return torch.get_autocast_dtype(kind)
    return None


WAITING = {
    each.forward
    for each in (
        *(nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d),
        *(nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d),
    )
}


def deferring(model: nn.Module, backward: str | None, device: torch.device) -> AbstractContextManager[object]:
    """What a model's backward passes go into, the model made ready for it."""
    if backward in (None, "whole"):
        return nullcontext()
    later = WeightGradStore() if backward == "apart" else overlapped_wgrad(device)
    for module in model.modules():
        defer(module, later)
    return later
