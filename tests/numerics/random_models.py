"""Small models drawn at random, of what people write between layers.

`model_17` is the factory of the 17th, `only_softmax` that of one with this construct alone, `alone_3` of the 4th alone.

A model is a list of constructs, each a function of its current result (samples first, features second) that keeps that
shape of two dimensions; what a construct needs is drawn when the model is built, so that its forward is plain code.
"""

import random
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from numerics.random_constructs import CONSTRUCTS, WIDTHS, Code


class Drawn(nn.Module):
    """Its constructs, one after the other."""

    def __init__(self, seed: int, classes: int, shape: tuple[int, ...], *only: str) -> None:
        super().__init__()
        self.rng = random.Random(seed)
        self.names: list[str] = []
        self.code: list[Code] = []
        self.layers = nn.ModuleList()
        self.images = seed % 4 == 3
        if self.images:
            self.stem = nn.Sequential(nn.Conv2d(shape[0], 6, 3, padding=1), nn.ReLU())
            self.width = 6 * shape[1] * shape[2] // 4
        else:
            self.stem = nn.Sequential(nn.Flatten())
            self.width = shape[0] * shape[1] * shape[2]
        self.begin()
        for name in only or self._drawn():
            self.names.append(name)
            self.code.append(CONSTRUCTS[name](self))
            if self.rng.random() < 0.5:
                self.code.append(self.dense(self.rng.choice(WIDTHS)))
        self.head = nn.Linear(self.width, classes)
        del self.rng

    def _drawn(self) -> list[str]:
        """As many of each kind as of any other, be there many constructs of it or one."""
        kinds = self.rng.sample(sorted(KINDS), self.rng.randint(2, 4))
        return list(dict.fromkeys(self.rng.choice(sorted(KINDS[kind])) for kind in kinds))

    def begin(self) -> None:
        width = self.rng.choice(WIDTHS)
        self.first = nn.Linear(self.width, width)
        self.width = width

    def add(self, module: nn.Module) -> int:
        self.layers.append(module)
        return len(self.layers) - 1

    def dense(self, width: int) -> Code:
        """A dense layer of so many features."""
        number = self.add(nn.Linear(self.width, width))
        self.width = width
        return lambda model, x: model.layers[number](x)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        if self.images:
            x = functional.max_pool2d(x, 2)
            x = x * torch.sigmoid(x.mean((2, 3), keepdim=True))  # squeeze-and-excite
            x = x.flatten(1)
        x = self.first(x)
        for each in self.code:
            x = each(self, x)
        result: Tensor = self.head(x)
        return result


# Every plan that cuts layers refuses the first four: a model that has one would say nothing of its other constructs.
NOT_DRAWN = {"own parameter", "own matrix", "linear()", "tied", "a view changed twice", "a changed view in no_grad"}
KINDS = {
    "in place": {"clamp_", "x[mask] = 0", "sub_", "tanh_", "masked_fill_", "x.data[:, 0] = 1", "x[:, 1] = y"}
    | {"a view in place", "relu(inplace)", "y += x", "kept.mul_"},
    "views": {"view", "chunk", "unsqueeze", "a view in place", "x.T"},
    "shapes": {"x.shape[1] ** 0.5", "arange(x.shape[1])", "numel", "x.T"},
    "reductions": {"layer(x) + x.mean(1)", "x * mean", "x - mean", "softmax", "normalize", "std", "max", "cumsum"}
    | {"einsum", "layer norm", "batch norm", "sub_"},
    "concatenations": {"chunk", "x[:, ::2]", "stack", "branches"},
    "indexing": {"x[:, ::2]", "x[:, index]", "x[:, 1] = y", "unbind", "flip", "roll", "where"},
    "loops over layers": {"loop", "unbind"},
    "shared modules": {"shared"},
    "other layers": {"gru", "attention", "attention by hand", "convolution", "group norm", "embedding"},
    "autograd": {"recomputed", "no_grad", "layer_norm()"},
    "others": {"residual", "squeeze and excite", "running mean", "constant", "unused"},
}


def build(seed: int, classes: int, shape: tuple[int, ...]) -> Drawn:
    return Drawn(seed, classes, shape)


def build_of(only: str, classes: int, shape: tuple[int, ...]) -> Drawn:
    return Drawn(0, classes, shape, only)


def __getattr__(name: str) -> Any:
    if name.startswith("alone_"):
        return partial(build_of, list(CONSTRUCTS)[int(name.removeprefix("alone_"))])
    if name.startswith("model_"):
        return partial(build, int(name.removeprefix("model_")))
    if name.startswith("only_"):
        return partial(build_of, name.removeprefix("only_"))
    raise AttributeError(name)
