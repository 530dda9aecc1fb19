"""The multilayer perceptron, for tables and flattened images."""

from collections import OrderedDict
from math import prod

from torch import nn

from manyhands.models.activations import activation as layer_of
from manyhands.models.sizes import scaled

HIDDEN = 256


def mlp(
    classes: int,
    shape: tuple[int, ...],
    vocabulary: int | None = None,
    *,
    width: float = 1.0,
    depth: int = 2,
    dropout: float = 0.0,
    activation: str = "relu",
    batch_norm: bool = False,
) -> nn.Sequential:
    """`depth` hidden layers (0: a linear model) of 256 × `width` units."""
    layers: OrderedDict[str, nn.Module] = OrderedDict(flatten=nn.Flatten())
    inputs, hidden = prod(shape), scaled(HIDDEN, width)
    for index in range(1, depth + 1):
        layers[f"dense{index}"] = nn.Linear(inputs, hidden)
        if batch_norm:
            layers[f"norm{index}"] = nn.BatchNorm1d(hidden)
        layers[f"act{index}"] = layer_of(activation)
        if dropout:
            layers[f"dropout{index}"] = nn.Dropout(dropout)
        inputs = hidden
    layers["output"] = nn.Linear(inputs, classes)
    return nn.Sequential(layers)
