"""Cannon: a dense layer on a q x q grid of ranks, each of which has one of q² blocks of the batch and of the weight.

Y = X·Wᵀ + b. Rank (i, j) takes X(i, j), rows i of input features j, and makes Y(i, j), rows i of output features j. Of
the weight it has W(j, i + j), output features j of input features i + j, all modulo q: so W lies skewed from the
beginning, and X alone is skewed at first, row i by i to the left. In each of q rounds every rank adds X(i, k)·W(j, k)ᵀ
to its Y; then X goes on to the left and W up. k of each rank, for q = 3:

    round 0          round 1          round 2
    0  1  2          1  2  0          2  0  1         X(i, k)  ←  along row i of the grid
    1  2  0          2  0  1          0  1  2
    2  0  1          0  1  2          1  2  0         W(j, k)  ↑  along column j

Backward goes through the same rounds, with dY(i, j) at rest: the sum dX(i, k) of dY(i, j)·W(j, k) travels with X, the
sum dW(j, k) of dY(i, j)ᵀ·X(i, k) with W. After the last round dX(i, k) goes to rank (i, k), and dW(j, k) one more up,
which is where W(j, k) is at home.

Blocks go on to the next rank while they are multiplied. Every message is known to both sides from the sizes alone.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from manyhands.comm.host_staged import Coming, Going, receive, send
from manyhands.plan.tensor_layout import Span, edges, side_of


@dataclass
class Cannon:
    """One rank's side of one dense layer. All ranks of the grid call it together, those without rows as well."""

    rank: int
    devices: tuple[int, ...]  # rank (i, j) is devices[i * q + j]
    inputs: int
    outputs: int
    group: Any = None  # that has these devices; None: all ranks
    sent_bytes: int = 0

    def __post_init__(self) -> None:
        self.side = side_of(self.devices)
        self.row, self.column = divmod(self.devices.index(self.rank), self.side)
        self.widths = [after - before for before, after in self._pairs(self.inputs)]

    def weight_of(self, device: int) -> tuple[Span, Span]:
        """Rows and columns of the whole weight that a device has; of the bias it has the same rows."""
        row, column = divmod(self.devices.index(device), self.side)
        return self._pairs(self.outputs)[column], self._pairs(self.inputs)[(row + column) % self.side]

    def __call__(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """Y(i, j) from X(i, j), features last. The gradient of the weight's block is that of the whole batch.

        The bias is one for all ranks of a column of the grid, and its gradient that of this rank's rows.
        """
        if torch.is_autocast_enabled(x.device.type):
            kind = torch.get_autocast_dtype(x.device.type)
            x, weight = x.to(kind), weight.to(kind)
        product: Tensor = _Product.apply(x.flatten(0, -2), weight, self)  # type: ignore[no-untyped-call]
        y = product.view(*x.shape[:-1], product.shape[1])
        return y if bias is None else y + bias

    def skewed(self, x: Tensor) -> Tensor:
        """X(i, i + j) for X(i, j)."""
        return self.passed(x, 0, -self.row, self.row + self.column).arrived()

    def rounds(self, x: Tensor, weight: Tensor) -> Iterator[tuple[int, Tensor, Tensor]]:
        """The number, X(i, k) and W(j, k) of each round; the next ones are on their way meanwhile."""
        for number in range(self.side - 1):
            letters = self.left(x, number), self.up(weight, number)
            yield number, x, weight
            x, weight = (letter.arrived() for letter in letters)
        yield self.side - 1, x, weight

    def left(self, x: Tensor, number: int) -> "_Letter":
        """Pass a block on after a round."""
        return self.passed(x, 0, -1, self.row + self.column + number + 1)

    def up(self, weight: Tensor, number: int) -> "_Letter":
        return self.passed(weight, -1, 0, self.row + self.column + number + 1)

    def home(self, x: Tensor) -> "_Letter":
        """X(i, j) for X(i, i + j − 1), which the last round had."""
        return self.passed(x, 0, self.row - 1, self.column)

    def passed(self, block: Tensor, down: int, right: int, part: int) -> "_Letter":
        """Send a block on, and take the one, of a part of the input features, that comes the same way."""
        target = self._at(self.row + down, self.column + right)
        source = self._at(self.row - down, self.column - right)
        if target == self.rank:
            return _Letter(block, None, None)
        shape = (len(block), self.widths[part % self.side])
        coming = receive(block, *shape, source=source, group=self.group) if all(shape) else None
        going = send(block, target, group=self.group) if block.numel() else None
        self.sent_bytes += block.numel() * block.element_size()
        return _Letter(block.new_empty(0 if coming else shape), coming, going)

    def _at(self, row: int, column: int) -> int:
        return self.devices[row % self.side * self.side + column % self.side]

    def _pairs(self, size: int) -> list[Span]:
        bounds = edges(size, self.side)
        return [Span(*pair) for pair in pairwise(bounds)]


class _Letter(NamedTuple):
    """A block, or the one that comes, and the one that goes."""

    block: Tensor
    coming: Coming | None
    going: Going | None

    def arrived(self) -> Tensor:
        block = self.coming.wait() if self.coming else self.block
        if self.going:
            self.going.wait()
        return block


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, grid: Cannon) -> Tensor:
        x = grid.skewed(x)
        ctx.grid = grid
        ctx.save_for_backward(x, weight)
        y = x.new_zeros(len(x), len(weight))
        for _, block, of_weight in grid.rounds(x, weight):
            y.addmm_(block, of_weight.t())
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        grid: Cannon = ctx.grid
        wants_x, wants_weight, _ = ctx.needs_input_grad
        dx = dw = None
        for number, x, weight in grid.rounds(*ctx.saved_tensors):
            # The products first: the sums of the rounds before come meanwhile.
            more_x, more_weight = dy @ weight if wants_x else None, dy.t() @ x if wants_weight else None
            if more_x is not None:
                total = more_x if dx is None else more_x.add_(dx.arrived())
                dx = grid.left(total, number) if number < grid.side - 1 else grid.home(total)
            if more_weight is not None:
                total = more_weight if dw is None else more_weight.add_(dw.arrived())
                dw = grid.up(total, number)
        return dx.arrived() if dx else None, dw.arrived() if dw else None, None
