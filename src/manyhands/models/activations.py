"""Activations by name."""

from torch import nn

from manyhands.errors import ModelError, choices

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "sigmoid": nn.Sigmoid,
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "leaky_relu": nn.LeakyReLU,
}


def activation(name: str) -> nn.Module:
    """A fresh activation layer."""
    if name not in ACTIVATIONS:
        raise ModelError(f"unknown activation '{name}': {choices(name, ACTIVATIONS)}")
    return ACTIVATIONS[name]()
