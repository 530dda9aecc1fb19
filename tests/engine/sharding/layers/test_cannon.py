"""Cannon's algorithm gives what one device gives, with a q²-th of the weight on each rank."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.nn.functional import linear

from manyhands.engine.sharding.layers.cannon import Cannon
from manyhands.errors import PlanError
from manyhands.plan.resharding import moves
from manyhands.plan.sharding import on
from manyhands.plan.tensor_layout import Layout, made, moved, taken
from rank_pool import Pool

# Rows, input and output features: even, uneven, fewer rows than ranks, fewer features, and tokens.
SIZES = [((8,), 6, 4), ((10,), 7, 5), ((1,), 5, 3), ((6,), 1, 3), ((5, 3), 7, 4)]


@pytest.fixture(scope="module")
def nine() -> Iterator[Pool]:
    pool = Pool([], 9)
    yield pool
    pool.stop()


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize(("rows", "inputs", "outputs"), SIZES)
def test_four_ranks(pools: Any, rows: tuple[int, ...], inputs: int, outputs: int, first: bool) -> None:
    pools("gloo").run("engine.cannon_cases:one_layer", "gloo", 4, rows, inputs, outputs, first)


@pytest.mark.parametrize("backend", ["shm", "mpi"])
def test_other_backends(pools: Any, backend: str) -> None:
    pools(backend).run("engine.cannon_cases:one_layer", backend, 4, (10,), 7, 5, False)
    pools(backend).run("engine.cannon_cases:one_layer", backend, 4, (200,), 300, 100, False)


def test_two_layers(pools: Any) -> None:
    pools("gloo").run("engine.cannon_cases:two_layers", "gloo", 4)


@pytest.mark.long
@pytest.mark.parametrize(("rows", "inputs", "outputs"), SIZES)
def test_nine_ranks(nine: Pool, rows: tuple[int, ...], inputs: int, outputs: int) -> None:
    nine.run("engine.cannon_cases:one_layer", "gloo", 9, rows, inputs, outputs, False)
    nine.run("engine.cannon_cases:two_layers", "gloo", 9)


def sent(have: Layout, want: Layout, rows: int) -> int:
    return sum(each.block.size for each in moves(have, want, rows) if each.source != each.target)


@pytest.mark.parametrize("side", [1, 2, 3, 4])
@pytest.mark.parametrize(("rows", "inputs", "outputs"), [(12, 24, 36), (13, 10, 17)])
def test_gathering_moves_what_layouts_say(rows: int, inputs: int, outputs: int, side: int) -> None:
    have = made(on(0, sample=side, parameter=side), inputs)
    meshed, spread = on(0, sample=side, parameter=side), on(0, parameter=side * side)
    found = moved(rows, inputs, outputs, side)
    for told, split, reduced in ((found.meshed, meshed, side), (found.spread, spread, 1)):
        want = taken(split, inputs, same=False)
        gradients = 2 * (reduced - 1) * inputs * outputs  # a ring sends each number twice, to all but itself
        assert told == sent(have, want, rows) + sent(want, have, rows) + gradients


def test_when_it_moves_less() -> None:
    """Against the same share of the weight on each rank: where there are more rows than features."""
    many, few = moved(4096, 512, 512, 4), moved(64, 512, 512, 4)
    assert many.cannon < many.spread
    assert few.cannon > few.spread
    for each in (many, few):  # which pays with four times the memory
        assert each.meshed < each.cannon


def test_the_parts_of_the_weight_are_the_whole() -> None:
    grid = Cannon(0, tuple(range(9)), 10, 7)
    seen = torch.zeros(7, 10)
    for device in range(9):
        rows, columns = grid.weight_of(device)
        seen[rows.begin : rows.end, columns.begin : columns.end] += 1
    assert (seen == 1).all()


def test_one_rank_is_a_dense_layer() -> None:
    generator = torch.Generator().manual_seed(0)
    x, weight, bias = (torch.randn(shape, generator=generator) for shape in ((4, 3, 6), (5, 6), (5,)))
    layer = Cannon(0, (0,), 6, 5)
    assert torch.allclose(layer(x, weight, bias), linear(x, weight, bias), atol=1e-6)
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(x, weight).dtype == linear(x, weight).dtype == torch.bfloat16


def test_other_numbers_of_ranks_are_refused() -> None:
    with pytest.raises(PlanError, match="square number of devices, not 6"):
        Cannon(0, tuple(range(6)), 8, 8)
