"""TreeNets: a trunk that branches share, each a small network with scores of its own, and what they say together.

Lee, Purushwalkam, Cogswell, Crandall, Batra: Why M heads are better than one (2015).
"""

import math
from collections import OrderedDict

import torch
from torch import Tensor, nn
from torch.nn.functional import log_softmax

from manyhands.models.activations import activation as layer_of
from manyhands.models.sizes import remaining, scaled, window


class Ensemble(nn.Module):
    """The mean of the branches' probabilities, as scores: log(Σ softmax(scores_i) / branches).

    Its cross entropy trains each branch on the branch's own error, softmax(scores_i) − target, by the branch's share
    in what all say of the right class. The mean of the scores would hand every branch the error of the ensemble:
    once that is small, none of them is taught to be right by itself, and they lean on each other.
    """

    def forward(self, *scores: Tensor) -> Tensor:
        each = torch.stack([log_softmax(one, dim=-1) for one in scores])
        return each.logsumexp(0) - math.log(len(scores))


class TreeNet(nn.Module):
    """Branches are `branch_0`, `branch_1`, …, so that a plan can name each of them."""

    def __init__(self, trunk: nn.Module, branches: list[nn.Module]) -> None:
        super().__init__()
        self.trunk = trunk
        self.count = len(branches)
        for number, branch in enumerate(branches):
            self.add_module(f"branch_{number}", branch)
        self.ensemble = Ensemble()

    def forward(self, x: Tensor) -> Tensor:
        shared = self.trunk(x)
        together: Tensor = self.ensemble(*(self.get_submodule(f"branch_{n}")(shared) for n in range(self.count)))
        return together


def treenet(
    classes: int,
    shape: tuple[int, ...],
    vocabulary: int | None = None,
    *,
    width: float = 1.0,
    depth: int = 3,
    dropout: float = 0.0,
    activation: str = "relu",
) -> TreeNet:
    """A trunk of one 3x3 convolution and a max-pool, and `depth` branches: another such pair, a dense layer, classes.

    The trunk has 32 channels, a branch 64 and 64 dense units, × `width`.
    """
    channels, height, breadth = shape
    size = window(window((height, breadth), 2, stride=2), 2, stride=2)
    left = remaining("treenet", shape, size, least=4)
    shared, own = scaled(32, width), scaled(64, width)
    trunk = OrderedDict(conv=nn.Conv2d(channels, shared, 3, padding=1), act=layer_of(activation), pool=nn.MaxPool2d(2))

    def branch() -> nn.Module:
        layers: OrderedDict[str, nn.Module] = OrderedDict()
        layers["conv"] = nn.Conv2d(shared, own, 3, padding=1)
        layers["act1"] = layer_of(activation)
        layers["pool"] = nn.MaxPool2d(2)
        layers["flatten"] = nn.Flatten()
        layers["dense"] = nn.Linear(own * left, own)
        layers["act2"] = layer_of(activation)
        layers["dropout"] = nn.Dropout(dropout)
        layers["output"] = nn.Linear(own, classes)
        return nn.Sequential(layers)

    return TreeNet(nn.Sequential(trunk), [branch() for _ in range(depth)])
