"""OWT boundary: where layers by sample hand over to layers by parameter, rank after rank (boundary=turns).

One weird trick for parallelizing convolutional neural networks (Krizhevsky 2014), 4(b). All ranks begin to send their
samples to all others when the layers by sample are done; in turn k the layers by parameter work on those of rank k
alone, forward and backward, while later ones are on their way. Four ranks:

    by sample        | 0 1 2 3 |                                          | 0 1 2 3 |   backward
    on the way       |    0    |    1    |    2    |    3    |
    by parameter               | 0 → 0 ← | 1 → 1 ← | 2 → 2 ← | 3 → 3 ← |

Gradients come back to their rank meanwhile; the layers by sample go backward when all have come. With boundary=updates
the layers by parameter learn in every turn: their batch is that of one rank.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from manyhands.engine.sharding.activation import Part, part_of, plain
from manyhands.engine.sharding.redistribute import Lay
from manyhands.plan.tensor_layout import Layout, Place


class Boundary:
    """One result that crosses it, in one step."""

    def __init__(self, part: Part, want: Layout) -> None:
        self.post, self.own, self.want = part.post, plain(part), want
        layout, rows, dim = part.lay
        self.turns = [
            Lay(Layout(1, layout.together().columns, {rank: Place(0, 0)}), layout.span(rank, rows).size, dim)
            for rank in sorted(layout.places)
        ]
        self.coming = [
            self.post.begin(self._of(turn), lay.layout, want, lay, 1 + turn) for turn, lay in enumerate(self.turns)
        ]
        self.back: Callable[[], Tensor] = lambda: torch.zeros_like(self.own)

    def _of(self, turn: int) -> Tensor:
        """This rank's samples in a turn: all in its own, none in another's."""
        return self.own.detach() if self.post.rank in self.turns[turn].layout.places else self.own.detach()[:0]

    def part(self, turn: int) -> Part:
        """The samples of a turn as the layers by parameter take them."""
        came: Tensor = _Came.apply(self.post.anchor, self, turn)  # type: ignore[no-untyped-call]
        return part_of(came, self.post, self.turns[turn]._replace(layout=self.want))

    def send_back(self, turn: int, gradient: Tensor) -> None:
        lay = self.turns[turn]
        finish = self.post.begin(gradient, self.want, lay.layout, lay, 1 + turn, back=True)
        if self.post.rank in lay.layout.places:
            self.back = finish
        else:
            finish()

    def backward(self, scale: float) -> None:
        """Let what came before go backward."""
        torch.autograd.backward(self.own, self.back() * scale)


class _Came(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, anchor: Tensor, boundary: Boundary, turn: int) -> Tensor:
        ctx.boundary, ctx.turn = boundary, turn
        return boundary.coming[turn]()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, None, None]:
        ctx.boundary.send_back(ctx.turn, gradient)
        return None, None, None


class BoundaryStep:
    """The boundaries of one step, and what the layers before them have made."""

    def __init__(self, rows: int) -> None:
        self.rows, self.turn = rows, 0  # samples of the batch, and the rank whose turn it is
        self.made: dict[str, Any] = {}  # by layer
        self.boundaries: dict[str, Boundary] = {}

    def activation_of_turn(self, name: str, part: Part, want: Layout) -> Part:
        if name not in self.boundaries:
            self.boundaries[name] = Boundary(part, want)
        return self.boundaries[name].part(self.turn)
