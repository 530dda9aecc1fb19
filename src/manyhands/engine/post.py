"""Post: blocks of results from rank to rank, forward, and their gradients back.

What goes where is plan.layout's to say. All messages of a move between two ranks are one; a rank begins to send before
it waits for what it gets, and waits for what it sent at the end of a step, so that stages of a pipeline do not wait for
each other.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

from manyhands.plan.layout import Block, Layout, Move, moves, returns


class Lay(NamedTuple):
    """Where the rows and columns of a result lie: of so many rows in all, features in dimension `dim`."""

    layout: Layout
    rows: int
    dim: int

    def together(self) -> "Lay":
        return self._replace(layout=self.layout.together())


@lru_cache(maxsize=4096)
def _moves(have: Layout, want: Layout, rows: int, back: bool) -> tuple[Move, ...]:
    return tuple((returns if back else moves)(have, want, rows))


class Post:
    """One rank's side."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.pending: list[tuple[Any, Tensor]] = []  # what is on its way
        self.sent_bytes = 0
        self.seed, self.draws = torch.initial_seed(), 0
        # What all results that learn depend on, even where a rank has none of them.
        self.anchor = torch.zeros(0, requires_grad=True)

    @contextmanager
    def drawing(self, layout: Layout) -> Iterator[None]:
        """Let those that have the same place of a layout draw the same numbers, and others other ones."""
        self.draws += 1  # on every rank alike
        place = layout.places.get(self.rank)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(hash((self.seed, self.draws, place)) % 2**63)
            yield

    def finish(self) -> None:
        """Wait until all that was sent has gone."""
        for work, _ in self.pending:
            work.wait()
        self.pending.clear()

    def carry(self, tensor: Tensor, have: Layout, want: Layout, lay: Lay, *, back: bool) -> Tensor:
        """This rank's block of `want`, from everyone's of `have`; back: of `have`, summands of `want` added up."""
        mine, wanted = have.block(self.rank, lay.rows), want.block(self.rank, lay.rows)
        given, asked, present = (wanted, mine, have) if back else (mine, wanted, want)
        chosen = _moves(have, want, lay.rows, back)
        arriving = [(source, list(group)) for source, group in _by(chosen, 0, self.rank)]
        buffers = [tensor.new_empty(_count(group, tensor, lay.dim)) for _, group in arriving]
        works = [dist.irecv(buffer, source) for (source, _), buffer in zip(arriving, buffers, strict=True)]
        for target, group in _by(chosen, 1, self.rank):
            pieces = [_narrow(tensor, each.block, given, lay.dim).reshape(-1) for each in group]
            message = pieces[0].contiguous() if len(pieces) == 1 else torch.cat(pieces)
            self.sent_bytes += message.numel() * message.element_size()
            self.pending.append((dist.isend(message, target), message))
        shape = list(tensor.shape)
        shape[0] = asked.rows.size
        if lay.dim:
            shape[lay.dim] = asked.columns.size if self.rank in present.places else present.columns[-1]
        result = tensor.new_zeros(shape) if back else tensor.new_empty(shape)
        for each in chosen:
            if each.source == each.target == self.rank:
                _put(result, each.block, asked, lay.dim, _narrow(tensor, each.block, given, lay.dim), back)
        for work, buffer, (_, group) in zip(works, buffers, arriving, strict=True):
            assert work is not None
            work.wait()
            begin = 0
            for each in group:
                size = _size(each.block, tensor, lay.dim)
                shape[lay.dim], shape[0] = each.block.columns.size, each.block.rows.size
                _put(result, each.block, asked, lay.dim, buffer[begin : begin + size].view(shape), back)
                begin += size
        return result

    def moved(self, tensor: Tensor, lay: Lay, want: Layout, learns: bool = True) -> Tensor:
        """A result as another layout has it; its gradient comes back."""
        if lay.layout == want:
            return tensor
        anchor = self.anchor if learns and tensor.is_floating_point() and torch.is_grad_enabled() else None
        result: Tensor = _Moved.apply(tensor, anchor, self, lay, want)  # type: ignore[no-untyped-call]
        return result


class _Moved(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, anchor: Tensor | None, post: Post, lay: Lay, want: Layout) -> Tensor:
        ctx.post, ctx.lay, ctx.want = post, lay, want
        if not tensor.is_floating_point():
            ctx.set_materialize_grads(False)
        return post.carry(tensor, lay.layout, want, lay, back=False)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.post.carry(gradient, ctx.lay.layout, ctx.want, ctx.lay, back=True), None, None, None, None


class _Summed(torch.autograd.Function):
    """Parts of a sum, added up over a group: each has the whole, and its gradient."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, group: Any) -> Tensor:
        result = tensor.contiguous().clone()
        dist.all_reduce(result, group=group)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None


class _Absent(torch.autograd.Function):
    """The result of a layer on a rank that has no part of it: no rows, but of the right shape."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor | None, shape: Sequence[int], *inputs: Tensor) -> Tensor:
        ctx.shapes = [(each.shape, each.dtype) for each in inputs]
        return inputs[0].new_empty(0, *shape, dtype=anchor.dtype if anchor is not None else None)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        needed = ctx.needs_input_grad[2:]
        given = [
            gradient.new_zeros(shape, dtype=dtype) if wanted else None
            for (shape, dtype), wanted in zip(ctx.shapes, needed, strict=True)
        ]
        return None, None, *given


def summed(tensor: Tensor, group: Any) -> Tensor:
    result: Tensor = _Summed.apply(tensor, group)  # type: ignore[no-untyped-call]
    return result


def absent(post: Post, shape: Sequence[int], inputs: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    anchor = post.anchor if torch.is_grad_enabled() and dtype.is_floating_point else None
    result: Tensor = _Absent.apply(anchor, tuple(shape), *inputs)  # type: ignore[no-untyped-call]
    return result.to(dtype)


def _by(chosen: Sequence[Move], end: int, rank: int) -> Iterator[tuple[int, list[Move]]]:
    """Of the moves that end (1) or begin (0) elsewhere and begin or end here, those with each other rank."""
    found: dict[int, list[Move]] = {}
    for each in chosen:
        if each[1 - end] == rank and each[end] != rank:
            found.setdefault((each.source, each.target)[end], []).append(each)
    yield from sorted(found.items())


def _narrow(tensor: Tensor, block: Block, whole: Block, dim: int) -> Tensor:
    rows, columns = block.rows.within(whole.rows), block.columns.within(whole.columns)
    narrow = tensor.narrow(0, rows.begin, rows.size)
    return narrow.narrow(dim, columns.begin, columns.size) if dim else narrow


def _put(result: Tensor, block: Block, whole: Block, dim: int, piece: Tensor, add: bool) -> None:
    place = _narrow(result, block, whole, dim)
    place.add_(piece) if add else place.copy_(piece)


def _size(block: Block, tensor: Tensor, dim: int) -> int:
    """Numbers in a block of results like these."""
    rest = 1
    for number, size in enumerate(tensor.shape):
        if number not in (0, dim):
            rest *= size
    return block.size * rest


def _count(group: Sequence[Move], tensor: Tensor, dim: int) -> int:
    return sum(_size(each.block, tensor, dim) for each in group)
