"""Deep stacking networks: blocks of one hidden layer, each of which mends what the one before it says.

Deng, Yu: Deep convex net (2011). A block takes the input beside the prediction of the block before it:

    x ─┬──────────────┬──────────────┐
       └→ block_1 ─ p ┴→ block_2 ─ p ┴→ block_3 ─ scores
"""

from math import prod

import torch
from torch import Tensor, nn

from manyhands.models.activations import activation as layer_of
from manyhands.models.sizes import scaled

HIDDEN = 256


class Beside(nn.Module):
    """The input, and behind it what the block before holds likely."""

    def forward(self, given: Tensor, scores: Tensor) -> Tensor:
        return torch.cat([given, scores.softmax(-1)], dim=-1)


class Block(nn.Module):
    """One hidden layer; a later block adds to the scores of the one before.

    It begins by adding nothing, so that a network whose last blocks have not had their turn says what the others do.
    """

    def __init__(self, inputs: int, hidden: int, classes: int, activation: str, *, later: bool) -> None:
        super().__init__()
        self.beside = Beside() if later else None
        self.dense = nn.Linear(inputs + classes if later else inputs, hidden)
        self.act = layer_of(activation)
        self.output = nn.Linear(hidden, classes)
        if later:
            nn.init.zeros_(self.output.weight)
            nn.init.zeros_(self.output.bias)

    def forward(self, given: Tensor, scores: Tensor | None = None) -> Tensor:
        taken = given if self.beside is None else self.beside(given, scores)
        own: Tensor = self.output(self.act(self.dense(taken)))
        return own if scores is None else scores + own


class Stacking(nn.Module):
    """Trained as one network, until `begin_epoch` says whose turn it is: then block by block."""

    def __init__(self, blocks: list[Block]) -> None:
        super().__init__()
        self.flatten = nn.Flatten()
        self.count = len(blocks)
        for number, block in enumerate(blocks, 1):
            self.add_module(f"block_{number}", block)
        self.turn: int | None = None

    def begin_epoch(self, epoch: int, epochs: int) -> None:
        """Let one block alone learn; blocks share the epochs, and the last ones get none where there are too few."""
        self.turn = 1 + min(epoch * self.count // epochs, self.count - 1)
        for number in range(1, self.count + 1):
            self.get_submodule(f"block_{number}").requires_grad_(number == self.turn)

    def forward(self, x: Tensor) -> Tensor:
        given = self.flatten(x)
        scores: Tensor = self.get_submodule("block_1")(given)
        # Those that have not had their turn would change nothing, and nothing shall teach them yet.
        last = self.count if self.turn is None or not self.training else self.turn
        for number in range(2, last + 1):
            scores = self.get_submodule(f"block_{number}")(given, scores)
        return scores


def stacking(
    classes: int,
    shape: tuple[int, ...],
    vocabulary: int | None = None,
    *,
    width: float = 1.0,
    depth: int = 3,
    activation: str = "relu",
) -> Stacking:
    """`depth` blocks, each with one hidden layer of 256 × `width` units."""
    sizes = (prod(shape), scaled(HIDDEN, width), classes, activation)
    return Stacking([Block(*sizes, later=number > 0) for number in range(depth)])
