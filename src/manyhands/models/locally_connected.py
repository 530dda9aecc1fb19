"""Locally connected: convolutions whose weights differ at every position."""

import math
from collections import OrderedDict

import torch
from torch import Tensor, nn
from torch.nn.functional import unfold

from manyhands.models.activations import activation as layer_of
from manyhands.models.sizes import remaining, scaled, window


class LocallyConnected2d(nn.Module):
    """An unshared convolution: output position l has weights (O, K) and biases of its own.

    y[b, o, l] = Σ_k x_l[b, k] · w[l, o, k] + bias[o, l],  x_l the K = C·k·k inputs under window l
    """

    def __init__(self, inputs: int, outputs: int, size: tuple[int, int], kernel: int, stride: int = 1) -> None:
        """`size`: height and width of the input, which the number of weights depends on."""
        super().__init__()
        self.left = window(size, kernel, stride)
        positions, taps = math.prod(self.left), inputs * kernel * kernel
        self.kernel, self.stride = kernel, stride
        bound = 1 / math.sqrt(taps)
        self.weight = nn.Parameter(torch.empty(positions, outputs, taps).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(outputs, positions).uniform_(-bound, bound))

    def forward(self, x: Tensor) -> Tensor:
        windows = unfold(x, self.kernel, stride=self.stride)
        outputs = torch.einsum("bkl,lok->bol", windows, self.weight) + self.bias
        return torch.unflatten(outputs, -1, self.left)


def locally(
    classes: int,
    shape: tuple[int, ...],
    vocabulary: int | None = None,
    *,
    width: float = 1.0,
    depth: int = 1,
    dropout: float = 0.0,
    activation: str = "relu",
) -> nn.Sequential:
    """A 3x3 convolution and a max-pool, `depth` locally connected 3x3 layers, one dense layer.

    The convolution has 16 channels, the others 8, × `width`.
    """
    channels, height, breadth = shape
    outputs = scaled(16, width)
    size = window(window((height, breadth), 3), 2, stride=2)
    left = (size[0] - 2 * depth, size[1] - 2 * depth)
    positions = remaining("locally", shape, left, least=4 + 4 * depth)
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    layers["conv"] = nn.Conv2d(channels, outputs, 3)
    layers["act"] = layer_of(activation)
    layers["pool"] = nn.MaxPool2d(2)
    channels = outputs
    for index in range(1, depth + 1):
        outputs = scaled(8, width)
        layers[f"local{index}"] = LocallyConnected2d(channels, outputs, size, 3)
        layers[f"act{index}"] = layer_of(activation)
        channels, size = outputs, window(size, 3)
    layers["flatten"] = nn.Flatten()
    layers["dropout"] = nn.Dropout(dropout)
    layers["output"] = nn.Linear(channels * positions, classes)
    return nn.Sequential(layers)
