"""Reduction: several rows of elements become one, by sum, mean, product, minimum or maximum."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from manyhands.errors import RankError

PIECE = (
    256 << 10
)  # bytes of a row at a time: what the last row added is still in the core's cache when it is written out

_OPERATIONS: dict[str, Callable[..., Tensor]] = {
    "SUM": torch.add,
    "AVG": torch.add,
    "PRODUCT": torch.mul,
    "MIN": torch.minimum,
    "MAX": torch.maximum,
    "BAND": torch.bitwise_and,
    "BOR": torch.bitwise_or,
    "BXOR": torch.bitwise_xor,
}


def name_of(op: Any) -> str:
    """SUM, AVG … of torch's two classes for it."""
    name: str = getattr(op, "op", op).name
    if name not in _OPERATIONS:
        raise RankError(f"reduction {name} is not supported here. Allowed: {', '.join(_OPERATIONS)}")
    return name


def cut(row: Tensor, length: int) -> tuple[Tensor, ...]:
    """Views of so many elements, the last of what is left; one empty view of an empty row."""
    if row.numel() <= length:
        return (row,)
    views: tuple[Tensor, ...] = row.split(length)  # type: ignore[no-untyped-call]
    return views


def reduce_rows(rows: Sequence[Tensor], into: Sequence[Tensor], op: Any = dist.ReduceOp.SUM) -> None:
    """Reduce `rows`, in their order, and write the result to every row of `into`; these may be among `rows`."""
    name, first = name_of(op), rows[0]
    length = max(PIECE // first.element_size(), 1)
    # Half precision is added up in fp32, so that many ranks lose no more than two do.
    wide = first.dtype in (torch.bfloat16, torch.float16) and (len(rows) > 2 or name == "AVG")
    scratch = None
    if wide or len(rows) > 2:
        scratch = torch.empty(min(length, first.numel()), dtype=torch.float32 if wide else first.dtype)
    sources = zip(*(cut(row, length) for row in rows), strict=True)
    targets = zip(*(cut(row, length) for row in into), strict=True)
    for pieces, (target, *others) in zip(sources, targets, strict=True):
        _reduce(pieces, target, target if scratch is None else scratch[: target.numel()], name)
        for other in others:
            if other.data_ptr() != target.data_ptr():
                other.copy_(target)


def _reduce(pieces: Sequence[Tensor], target: Tensor, scratch: Tensor, name: str) -> None:
    """One piece. Only the last step writes to the target, for it may be one of the pieces."""
    operation, total, wide = _OPERATIONS[name], pieces[0], scratch.dtype != target.dtype
    if wide:
        total = scratch.copy_(total)
    for piece in pieces[1:-1]:
        total = operation(total, piece, out=scratch)
    if len(pieces) > 1:
        total = operation(total, pieces[-1], out=scratch if wide else target)
    if name == "AVG":
        total = mean(total, len(pieces))
    if total.data_ptr() != target.data_ptr():
        target.copy_(total)


def mean(total: Tensor, count: int) -> Tensor:
    exact = total.is_floating_point() or total.is_complex()
    return total.div_(count) if exact else total.floor_divide_(count)
