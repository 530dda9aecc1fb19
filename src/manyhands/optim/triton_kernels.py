"""Triton kernels: what LARS and LAMB do with every element on a GPU, as kernels that Triton compiles.

By torch's own operations, each of which reads and writes all of its arrays, a step costs 3.7 to 6.6 times one of
torch's fused SGD and AdamW (H200). Here a kernel goes over all layers at once: a block of it over so many elements of
one layer, whose arrays it finds in a table of addresses. Sums are those of blocks, added up in one order.
"""

from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from itertools import accumulate
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from manyhands.compat import foreach_add_

SIZE = 2048  # elements of a block
TOGETHER = 1024  # sums of blocks that are added up at a time

_kernel: Callable[[Callable[..., Any]], Any] = triton.jit


@_kernel
def _array(
    table: tl.tensor, layer: tl.tensor, number: tl.tensor, ARRAYS: tl.constexpr, ALIGNED: tl.constexpr
) -> tl.tensor:
    """Where an array of a layer begins; its address and its bytes are multiples of ALIGNED."""
    address = tl.load(table + layer * ARRAYS + number).to(tl.pointer_type(tl.float32))
    return tl.multiple_of(address, ALIGNED)


@_kernel
def _elements(
    layers: tl.tensor, firsts: tl.tensor, sizes: tl.tensor, ALIGNED: tl.constexpr, SIZE: tl.constexpr
) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """Which layer this block is of, its elements, and which of these there are."""
    block = tl.program_id(0)
    layer = tl.load(layers + block)
    start = (block - tl.load(firsts + layer)).to(tl.int64) * SIZE
    place = start + tl.arange(0, SIZE)
    return layer, place, place < tl.multiple_of(tl.load(sizes + layer), ALIGNED // 4)


@_kernel
def _tell(sums: tl.tensor, first: tl.tensor, second: tl.tensor) -> None:
    """The squares of two arrays, of this block."""
    place = sums + 2 * tl.program_id(0)
    tl.store(place, tl.sum(first * first))
    tl.store(place + 1, tl.sum(second * second))


@_kernel
def _squares(
    table: tl.tensor,
    layers: tl.tensor,
    firsts: tl.tensor,
    sizes: tl.tensor,
    sums: tl.tensor,
    ALIGNED: tl.constexpr,
    SIZE: tl.constexpr,
) -> None:
    layer, place, inside = _elements(layers, firsts, sizes, ALIGNED, SIZE)
    w = tl.load(_array(table, layer, 0, 2, ALIGNED) + place, mask=inside, other=0.0)
    g = tl.load(_array(table, layer, 1, 2, ALIGNED) + place, mask=inside, other=0.0)
    _tell(sums, w, g)


@_kernel
def _add_up(sums: tl.tensor, firsts: tl.tensor, told: tl.tensor, count: tl.tensor, TOGETHER: tl.constexpr) -> None:
    """The sums of all blocks of a layer, in fp64."""
    layer, column = tl.program_id(0), tl.program_id(1)
    first, last = tl.load(firsts + layer), tl.load(firsts + layer + 1)
    total = tl.zeros((TOGETHER,), tl.float64)
    for start in range(first, last, TOGETHER):
        block = start + tl.arange(0, TOGETHER)
        total += tl.load(sums + 2 * block + column, mask=block < last, other=0.0).to(tl.float64)
    tl.store(told + column * count + layer, tl.sum(total))


@_kernel
def _lars(
    table: tl.tensor,
    layers: tl.tensor,
    firsts: tl.tensor,
    sizes: tl.tensor,
    rates: tl.tensor,
    momentum: tl.tensor,
    decay: tl.tensor,
    ALIGNED: tl.constexpr,
    SIZE: tl.constexpr,
) -> None:
    layer, place, inside = _elements(layers, firsts, sizes, ALIGNED, SIZE)
    weights, speeds = _array(table, layer, 0, 3, ALIGNED) + place, _array(table, layer, 2, 3, ALIGNED) + place
    w, v = tl.load(weights, mask=inside), tl.load(speeds, mask=inside)
    g = tl.load(_array(table, layer, 1, 3, ALIGNED) + place, mask=inside)
    v = momentum * v + tl.load(rates + layer) * (g + decay * w)
    tl.store(speeds, v, mask=inside)
    tl.store(weights, w - v, mask=inside)


@_kernel
def _moments(
    table: tl.tensor,
    layers: tl.tensor,
    firsts: tl.tensor,
    sizes: tl.tensor,
    sums: tl.tensor,
    numbers: tl.tensor,
    keep1: tl.tensor,
    add1: tl.tensor,
    keep2: tl.tensor,
    add2: tl.tensor,
    decay: tl.tensor,
    ALIGNED: tl.constexpr,
    SIZE: tl.constexpr,
) -> None:
    """Let m and v learn, and put r + λ w in the gradient's place; the squares of w, and of that."""
    layer, place, inside = _elements(layers, firsts, sizes, ALIGNED, SIZE)
    gradients = _array(table, layer, 1, 4, ALIGNED) + place
    means, variances = _array(table, layer, 2, 4, ALIGNED) + place, _array(table, layer, 3, 4, ALIGNED) + place
    w = tl.load(_array(table, layer, 0, 4, ALIGNED) + place, mask=inside, other=0.0)
    g = tl.load(gradients, mask=inside, other=0.0)
    m = keep1 * tl.load(means, mask=inside, other=0.0) + add1 * g
    v = keep2 * tl.load(variances, mask=inside, other=0.0) + add2 * g * g
    times, eps = tl.load(numbers + 2 * layer), tl.load(numbers + 2 * layer + 1)
    u = times * m / (tl.sqrt(v) + eps) + decay * w
    u = tl.where(inside, u, 0.0)  # where there is nothing, it is nothing by nothing if ε is 0
    tl.store(means, m, mask=inside)
    tl.store(variances, v, mask=inside)
    tl.store(gradients, u, mask=inside)
    _tell(sums, w, u)


@_kernel
def _lamb(
    table: tl.tensor,
    layers: tl.tensor,
    firsts: tl.tensor,
    sizes: tl.tensor,
    rates: tl.tensor,
    ALIGNED: tl.constexpr,
    SIZE: tl.constexpr,
) -> None:
    layer, place, inside = _elements(layers, firsts, sizes, ALIGNED, SIZE)
    weights = _array(table, layer, 0, 2, ALIGNED) + place
    w, u = tl.load(weights, mask=inside), tl.load(_array(table, layer, 1, 2, ALIGNED) + place, mask=inside)
    tl.store(weights, w - tl.load(rates + layer) * u, mask=inside)


Rows = Sequence[Sequence[Tensor]]  # the arrays of each layer


def squares(rows: Rows) -> Tensor:
    """Two rows of sums of squares, a column a layer: of its first array, and of its second."""
    return _summed(_squares, rows)


def lars(rows: Rows, rates: Tensor, momentum: float, decay: float) -> None:
    """Weights, gradients and momenta of each layer, which has a rate of its own."""
    _over(_lars, rows, rates, momentum, decay)


def moments(rows: Rows, numbers: Tensor, betas: tuple[float, float], decay: float) -> Tensor:
    """Weights, gradients, m and v; `numbers`: what m is multiplied by, and what is added to √v, in each layer."""
    first, second = betas
    return _summed(_moments, rows, numbers, first, 1 - first, second, 1 - second, decay)


def lamb(rows: Rows, rates: Tensor) -> None:
    """Weights, and what they are changed by."""
    _over(_lamb, rows, rates)


def _summed(kernel: Any, rows: Rows, *others: Any) -> Tensor:
    device, count = rows[0][0].device, len(rows)
    layers, firsts, _ = _laid(device, *(row[0].numel() for row in rows))
    sums = torch.empty(2 * len(layers), dtype=torch.float32, device=device)
    told = torch.empty(2, count, dtype=torch.float64, device=device)
    _over(kernel, rows, sums, *others)
    with torch.cuda.device(device):
        _add_up[(count, 2)](sums, firsts, told, count, TOGETHER=TOGETHER)
    return told


def _over(kernel: Any, rows: Rows, *others: Any) -> None:
    """A kernel over all elements of all layers."""
    device = rows[0][0].device
    laid = _laid(device, *(row[0].numel() for row in rows))
    addresses = tuple(each.data_ptr() for row in rows for each in row)
    apart = any(each % 16 for each in addresses) or any(row[0].numel() % 4 for row in rows)
    # A graph has a table of its own, which it writes at each replay.
    table = (_table if torch.cuda.is_current_stream_capturing() else _known)(device, addresses)
    with torch.cuda.device(device):
        kernel[(len(laid[0]),)](table, *laid, *others, ALIGNED=4 if apart else 16, SIZE=SIZE)


@cache
def _laid(device: torch.device, *sizes: int) -> tuple[Tensor, Tensor, Tensor]:
    """The layer of each block, the first block of each layer, and its size. A capture finds them made, and points to
    them for ever."""
    counts = [-(-size // SIZE) for size in sizes]
    layers = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(counts)).int()
    firsts = torch.tensor([0, *accumulate(counts)], dtype=torch.int32)
    return layers.to(device), firsts.to(device), torch.tensor(sizes).to(device)


def _table(device: torch.device, addresses: tuple[int, ...]) -> Tensor:
    """Addresses in the memory of a device. They come with launches: a copy from the host could not be captured."""
    table = torch.zeros(len(addresses), dtype=torch.int64, device=device)
    foreach_add_(list(table.unbind()), list(addresses))
    return table


_known = lru_cache(maxsize=64)(_table)
