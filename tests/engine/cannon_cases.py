"""Dense layers by Cannon's algorithm, and the same on one device; each function runs in all ranks of a fresh group."""

from math import isqrt

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import linear

from manyhands.engine.sharding.layers.cannon import Cannon
from manyhands.plan.tensor_layout import edges, moved

LIMIT = 1e-10


def drawn(*shape: int) -> Tensor:
    """The same on every rank."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64)


def close(one: Tensor | None, other: Tensor) -> None:
    assert one is not None
    assert one.shape == other.shape
    assert (one - other).norm() <= LIMIT * other.norm()


class Grid:
    """The ranks in an order that is not their own, and what each has of a tensor."""

    def __init__(self, rank: int, world: int) -> None:
        self.devices, self.side = tuple(reversed(range(world))), isqrt(world)
        self.rank = rank
        self.row, self.column = divmod(self.devices.index(rank), self.side)
        columns = [[self.devices[row * self.side + column] for row in range(self.side)] for column in range(self.side)]
        self.groups = [dist.new_group(column) for column in columns]

    def cannon(self, inputs: int, outputs: int) -> Cannon:
        return Cannon(self.rank, self.devices, inputs, outputs)

    def block(self, whole: Tensor) -> Tensor:
        rows, columns = edges(len(whole), self.side), edges(whole.shape[-1], self.side)
        mine = whole[rows[self.row] : rows[self.row + 1]]
        return mine[..., columns[self.column] : columns[self.column + 1]]

    def own(self, layer: Cannon, weight: Tensor) -> Tensor:
        outputs, inputs = layer.weight_of(self.rank)
        return weight[outputs.begin : outputs.end, inputs.begin : inputs.end].clone()

    def added(self, bias: Tensor) -> Tensor:
        """The gradient of a bias, of which each rank of a column has that of its rows."""
        assert bias.grad is not None
        dist.all_reduce(bias.grad, group=self.groups[self.column])
        return bias.grad


def one_layer(
    backend: str, rank: int, world: int, rows: tuple[int, ...], inputs: int, outputs: int, first: bool
) -> None:
    """`first`: nobody wants the gradient of what the layer takes."""
    x, weight, bias = drawn(*rows, inputs), drawn(outputs, inputs), drawn(outputs)
    wanted = drawn(*rows, outputs)
    whole = [each.clone().requires_grad_(each is not x or not first) for each in (x, weight, bias)]
    y = linear(*whole)
    y.backward(wanted)

    grid = Grid(rank, world)
    layer = grid.cannon(inputs, outputs)
    own = grid.own(layer, weight).requires_grad_()
    told = bias[slice(*layer.weight_of(rank)[0])].clone().requires_grad_()
    given = grid.block(x).clone().requires_grad_(not first)
    result = layer(given, own, told)
    close(result, grid.block(y))
    result.backward(grid.block(wanted))
    dx, dweight, dbias = (each.grad for each in whole)
    close(own.grad, grid.own(layer, dweight))
    close(grid.added(told), dbias[slice(*layer.weight_of(rank)[0])])
    if first:
        assert given.grad is None
    else:
        close(given.grad, grid.block(dx))

    counts = torch.tensor([own.numel(), layer.sent_bytes])
    assert own.numel() <= -(-outputs // grid.side) * -(-inputs // grid.side)
    dist.all_reduce(counts)
    assert counts[0] == weight.numel()
    if len(rows) == 1 and not first:
        assert counts[1] == 8 * moved(rows[0], inputs, outputs, grid.side).cannon


def two_layers(backend: str, rank: int, world: int) -> None:
    """What one layer makes lies as the next one takes it."""
    x, weights = drawn(11, 9), [drawn(7, 9), drawn(5, 7)]
    whole = [each.clone().requires_grad_() for each in weights]
    torch.tanh(linear(torch.tanh(linear(x, whole[0])), whole[1])).sum().backward()

    grid = Grid(rank, world)
    layers = [grid.cannon(9, 7), grid.cannon(7, 5)]
    own = [grid.own(layer, weight).requires_grad_() for layer, weight in zip(layers, weights, strict=True)]
    part = grid.block(x)
    for layer, weight in zip(layers, own, strict=True):
        part = torch.tanh(layer(part, weight))
    part.sum().backward()
    for layer, weight, alone in zip(layers, own, whole, strict=True):
        assert alone.grad is not None
        close(weight.grad, grid.own(layer, alone.grad))
