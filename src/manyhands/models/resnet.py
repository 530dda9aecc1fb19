"""Residual networks: 18 layers of basic blocks, 50 of bottlenecks."""

from collections import OrderedDict

from torch import Tensor, nn

from manyhands.models.sizes import scaled

SMALL_IMAGE = 64


class Block(nn.Module):
    """A residual block: its convolutions, plus a shortcut that is projected where the shape changes.

    x ─┬─ conv norm act … conv norm ─ + ─ act ─
       └─────── (conv norm) ──────────┘
    """

    def __init__(self, inputs: int, kernels: list[tuple[int, int]], stride: int) -> None:
        """`kernels`: (size, channels) of each convolution; the first of 3x3 has the stride."""
        super().__init__()
        branch: OrderedDict[str, nn.Module] = OrderedDict()
        channels, strided = inputs, [size for size, _ in kernels].index(3)
        for index, (size, outputs) in enumerate(kernels):
            step = stride if index == strided else 1
            number = index + 1
            branch[f"conv{number}"] = nn.Conv2d(channels, outputs, size, step, padding=size // 2, bias=False)
            branch[f"norm{number}"] = nn.BatchNorm2d(outputs)
            if number < len(kernels):
                branch[f"act{number}"] = nn.ReLU()
            channels = outputs
        self.branch = nn.Sequential(branch)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != channels:
            conv, norm = nn.Conv2d(inputs, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            self.shortcut = nn.Sequential(OrderedDict(conv=conv, norm=norm))
        self.act = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.act(self.branch(x) + self.shortcut(x))
        return out


def resnet18(
    classes: int,
    shape: tuple[int, ...],
    vocabulary: int | None = None,
    *,
    width: float = 1.0,
    depth: int | None = None,
) -> nn.Sequential:
    """Basic blocks, 2 in each of the four stages, or `depth` in each; `width` multiplies the channels."""
    blocks = (2, 2, 2, 2) if depth is None else (depth,) * 4
    return _resnet(classes, shape, width, blocks, bottleneck=False)


def resnet50(
    classes: int,
    shape: tuple[int, ...],
    vocabulary: int | None = None,
    *,
    width: float = 1.0,
    depth: int | None = None,
) -> nn.Sequential:
    """Bottlenecks, 3, 4, 6 and 3 in the four stages, or `depth` in each; `width` multiplies the channels."""
    blocks = (3, 4, 6, 3) if depth is None else (depth,) * 4
    return _resnet(classes, shape, width, blocks, bottleneck=True)


def _resnet(
    classes: int, shape: tuple[int, ...], width: float, blocks: tuple[int, ...], bottleneck: bool
) -> nn.Sequential:
    layers = _stem(shape, scaled(64, width))
    channels = scaled(64, width)
    for stage, count in enumerate(blocks):
        inner = scaled(64 * 2**stage, width)
        outer = 4 * inner if bottleneck else inner
        kernels = [(1, inner), (3, inner), (1, outer)] if bottleneck else [(3, inner), (3, outer)]
        for index in range(count):
            stride = 2 if stage > 0 and index == 0 else 1
            layers[f"stage{stage + 1}_block{index + 1}"] = Block(channels, kernels, stride)
            channels = outer
    layers["pool"] = nn.AdaptiveAvgPool2d(1)
    layers["flatten"] = nn.Flatten()
    layers["output"] = nn.Linear(channels, classes)
    model = nn.Sequential(layers)
    _initialize(model)
    return model


def _stem(shape: tuple[int, ...], outputs: int) -> OrderedDict[str, nn.Module]:
    """7x7 and a max-pool quarter an ordinary image; a small one would be gone, so 3x3 keeps it whole."""
    small = max(shape[1:]) <= SMALL_IMAGE
    kernel, stride = (3, 1) if small else (7, 2)
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    layers["conv"] = nn.Conv2d(shape[0], outputs, kernel, stride, padding=kernel // 2, bias=False)
    layers["norm"] = nn.BatchNorm2d(outputs)
    layers["act"] = nn.ReLU()
    if not small:
        layers["stem_pool"] = nn.MaxPool2d(3, stride=2, padding=1)
    return layers


def _initialize(model: nn.Module) -> None:
    """He's normal for convolutions; a block's last norm starts at 0, so that it starts as the identity."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(module, Block):
            norm = module.branch[-1]
            assert isinstance(norm, nn.BatchNorm2d)
            nn.init.zeros_(norm.weight)
