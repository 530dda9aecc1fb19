"""Hook trace: the layers of a module that cannot be exported, as its modules are called, as a chain."""

from collections.abc import Callable, Iterator
from math import prod
from typing import Any

import torch
from torch import nn

from manyhands.graph.flops import flops, groups, kind_of
from manyhands.graph.graph import Layer, Shape

# What a module does, by the name of its class or of one that it is derived from.
OPERATIONS = {
    **{f"Conv{d}d": f"conv{d}d" for d in (1, 2, 3)},
    **{f"ConvTranspose{d}d": f"conv_transpose{d}d" for d in (1, 2, 3)},
    **{f"BatchNorm{d}d": "batch_norm" for d in (1, 2, 3)},
    **{f"MaxPool{d}d": f"max_pool{d}d" for d in (1, 2, 3)},
    **{f"AvgPool{d}d": f"avg_pool{d}d" for d in (1, 2, 3)},
    **{f"AdaptiveAvgPool{d}d": f"adaptive_avg_pool{d}d" for d in (1, 2, 3)},
    **{f"AdaptiveMaxPool{d}d": f"adaptive_max_pool{d}d" for d in (1, 2, 3)},
    **{f"ZeroPad{d}d": "pad" for d in (1, 2, 3)},
    "Linear": "linear",
    "Embedding": "embedding",
    "EmbeddingBag": "embedding_bag",
    "GRU": "gru",
    "LSTM": "lstm",
    "RNN": "rnn_tanh",
    "LayerNorm": "layer_norm",
    "GroupNorm": "group_norm",
    "ReLU": "relu",
    "LeakyReLU": "leaky_relu",
    "GELU": "gelu",
    "SiLU": "silu",
    "Tanh": "tanh",
    "Sigmoid": "sigmoid",
    "Dropout": "dropout",
    "Dropout2d": "feature_dropout",
    "Flatten": "flatten",
    "Identity": "identity",
}


def traced_by_hooks(model: nn.Module, inputs: torch.Tensor) -> list[Layer]:
    """The modules that hold no others in the order in which they are called, and those that learn by themselves."""
    watch = _Watch(tuple(inputs.shape))
    handles = [module.register_forward_hook(watch.hook(name)) for name, module in model.named_modules()]
    try:
        with torch.no_grad():
            model(inputs)
    finally:
        for handle in handles:
            handle.remove()
    return watch.layers


class _Watch:
    """What has been called so far."""

    def __init__(self, batch: Shape) -> None:
        self.batch = batch
        self.layers: list[Layer] = []
        self.calls: dict[str, int] = {}
        self.counted: set[int] = set()  # a weight that two layers share is the first one's

    def hook(self, name: str) -> Callable[[nn.Module, tuple[Any, ...], Any], None]:
        def note(module: nn.Module, arguments: tuple[Any, ...], result: Any) -> None:
            # A module is called after those that it holds: what they have not used is its own.
            fresh = [each for each in module.parameters() if id(each) not in self.counted]
            given = next(_tensors((result,)), None)
            if given is None or (any(module.children()) and not fresh):
                return
            self.counted.update(map(id, fresh))
            self._append(name, module, list(_tensors(arguments)), given, fresh)

        return note

    def _append(
        self, name: str, module: nn.Module, taken: list[torch.Tensor], given: torch.Tensor, fresh: list[nn.Parameter]
    ) -> None:
        self.calls[name] = calls = self.calls.get(name, 0) + 1
        names = [each.__name__ for each in type(module).__mro__]
        operation = next((OPERATIONS[each] for each in names if each in OPERATIONS), "")
        first = tuple(taken[0].shape) if taken else self.batch
        shapes = [first, *(tuple(each.shape) for each in module.parameters())]
        self.layers.append(
            Layer(
                name=name if calls == 1 else f"{name}@{calls}",
                kind=kind_of([operation]),
                operation=type(module).__name__,
                inputs=(first,),
                output=tuple(given.shape),
                weights=tuple(tuple(each.shape) for each in fresh if each.requires_grad),
                flops=_work(operation, shapes, tuple(given.shape)),
                after=(len(self.layers) - 1,) if self.layers else (),
                frozen=sum(each.numel() for each in fresh if not each.requires_grad),
                groups=groups(operation, shapes, tuple(given.shape)),
            )
        )


def _work(operation: str, shapes: list[Shape], output: Shape) -> int:
    """Of what is not known, as if every matrix were a dense layer over all positions of the input."""
    if operation:
        return flops(operation, shapes, output)
    positions = prod(shapes[0][:-1])
    return prod(output) + sum(2 * positions * prod(shape) for shape in shapes[1:] if len(shape) == 2)


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, tuple | list):
            yield from _tensors(value)
