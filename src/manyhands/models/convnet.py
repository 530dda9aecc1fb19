"""The usual small convolutional network of the MNIST examples."""

from collections import OrderedDict

from torch import nn

from manyhands.models.activations import activation as layer_of
from manyhands.models.sizes import remaining, scaled, window


def convnet(
    classes: int,
    shape: tuple[int, ...],
    vocabulary: int | None = None,
    *,
    width: float = 1.0,
    depth: int = 2,
    dropout: float | None = None,
    activation: str = "relu",
    batch_norm: bool = False,
) -> nn.Sequential:
    """`depth` convolutions of 3x3 (32 channels, then 64, all × `width`), one max-pool, 128 dense units.

    The first two have no padding; those that `depth` adds have, so that they fit any image. Dropout is 0.25
    after the pool and 0.5 before the output, or `dropout` at both.
    """
    channels, height, breadth = shape
    size = (height, breadth)
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    for index in range(1, depth + 1):
        outputs, padding = scaled(32 if index == 1 else 64, width), int(index > 2)
        layers[f"conv{index}"] = nn.Conv2d(channels, outputs, 3, padding=padding)
        if batch_norm:
            layers[f"norm{index}"] = nn.BatchNorm2d(outputs)
        layers[f"act{index}"] = layer_of(activation)
        channels, size = outputs, window(size, 3, padding=padding)
    layers["pool"] = nn.MaxPool2d(2)
    left = remaining("convnet", shape, window(size, 2, stride=2), least=2 + 2 * min(depth, 2))
    layers["dropout1"] = nn.Dropout(0.25 if dropout is None else dropout)
    layers["flatten"] = nn.Flatten()
    layers["dense"] = nn.Linear(channels * left, scaled(128, width))
    layers["act"] = layer_of(activation)
    layers["dropout2"] = nn.Dropout(0.5 if dropout is None else dropout)
    layers["output"] = nn.Linear(scaled(128, width), classes)
    return nn.Sequential(layers)
