"""AlexNet, in the channels of its one-tower form, with padding as layers of its own."""

from collections import OrderedDict

from torch import nn

from manyhands.errors import ModelError
from manyhands.models.activations import activation as layer_of
from manyhands.models.sizes import remaining, scaled, window

Size = tuple[int, int]


def alexnet(
    classes: int,
    shape: tuple[int, ...],
    vocabulary: int | None = None,
    *,
    width: float = 1.0,
    depth: int = 3,
    dropout: float = 0.5,
    activation: str = "relu",
    batch_norm: bool = False,
    head: str | None = None,
) -> nn.Sequential:
    """Convolutions of 11x11, 5x5 and `depth` of 3x3 between three max-pools, then dense 4096, 4096, classes.

    `width` multiplies the channels and the 4096. The dense part takes what remains of the image: 6x6 at 224
    pixels, less below; head="6x6" pools that to 6x6 first, and so keeps the full head at any size.
    """
    channels, height, breadth = shape
    stride = next((each for each in (4, 2) if min(_left((height, breadth), each)) >= 1), 1)
    left = remaining("alexnet", shape, _left((height, breadth), stride), least=21)

    # (index, kernel, channels, stride), a max-pool after the first, the second and the last
    convolutions = [(1, 11, 64, stride), (2, 5, 192, 1), (3, 3, 384, 1)]
    convolutions += [(index, 3, 256, 1) for index in range(4, 3 + depth)]
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    for index, kernel, base, step in convolutions:
        outputs = scaled(base, width)
        # Beside the convolution and not in it, so that a plan may pad on another device.
        layers[f"pad{index}"] = nn.ZeroPad2d(2 if index == 1 else kernel // 2)
        layers[f"conv{index}"] = nn.Conv2d(channels, outputs, kernel, stride=step)
        if batch_norm:
            layers[f"norm{index}"] = nn.BatchNorm2d(outputs)
        layers[f"act{index}"] = layer_of(activation)
        if index in (1, 2, len(convolutions)):
            layers[f"pool{index}"] = nn.MaxPool2d(3, stride=2)
        channels = outputs
    if head is not None:
        if head != "6x6":
            raise ModelError(f"unknown head '{head}': alexnet has 6x6, or none for a plain flatten")
        layers["pool"] = nn.AdaptiveAvgPool2d(6)
        left = 36

    inputs, hidden = channels * left, scaled(4096, width)
    layers["flatten"] = nn.Flatten()
    for name in ("a", "b"):
        layers[f"dropout_{name}"] = nn.Dropout(dropout)
        layers[f"dense_{name}"] = nn.Linear(inputs, hidden)
        layers[f"act_{name}"] = layer_of(activation)
        inputs = hidden
    layers["output"] = nn.Linear(hidden, classes)
    return nn.Sequential(layers)


def _left(size: Size, stride: int) -> Size:
    """What remains after the first convolution and the three pools; the other convolutions keep the size."""
    size = window(size, 11, stride=stride, padding=2)
    for _ in range(3):
        size = window(size, 3, stride=2)
    return size
