"""shm: a process group for ranks of one host that exchange through shared memory.

It is registered as a backend of torch.distributed, so that everything built on that runs on it. A tensor passes
through the buffers of a shared memory in pieces:

    piece 1      copy in │ each rank reduces its part of all copies │ copy out
    piece 2              │ copy in                                  │ each rank reduces its part … │ copy out
                         barrier                                    barrier                        barrier

Each rank has three buffers, used in turn: nobody writes to one before a barrier that all reached after reading it.
Tensors made by `shared` are reduced where they lie.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from manyhands.comm.backends.base import Finish, Group
from manyhands.comm.backends.point_to_point import PointToPoint
from manyhands.comm.backends.reduction import cut, reduce_rows
from manyhands.comm.backends.shared_memory import BUFFER, BUFFERS, LINE, SharedMemory
from manyhands.compat import Store
from manyhands.plan.tensor_layout import parts


def register() -> None:
    """Make `backend="shm"` known to torch.distributed; again and again does no harm."""
    if "shm" not in dist.Backend.backend_list:
        dist.Backend.register_backend("shm", ShmGroup, devices=["cpu"])


class ShmGroup(Group):
    """The ranks of one host."""

    name = "shm"

    def __init__(self, store: Store, rank: int, world: int, timeout: timedelta) -> None:
        super().__init__(rank, world)
        self.memory = SharedMemory(store, rank, world, timeout.total_seconds())
        self.mail = PointToPoint(self.memory)
        self.turn = 0

    # Reduced where they lie.

    def shared(self, count: int, dtype: torch.dtype) -> list[Tensor]:
        """A row in every rank's memory; gives all ranks' in order. All ranks call it together.

        For a tensor of which there is but one, let all ranks use the first: the others then take no memory.
        """
        return self.memory.empty(count, dtype)

    def all_reduce_shared(self, copies: Sequence[Tensor], op: Any = dist.ReduceOp.SUM) -> Tensor:
        """All-reduce without a copy in or out, for what `shared` made or views of it that all ranks took alike.

        Gives the result: the first copy, in which all ranks read it; the others stay as they were.
        """
        self._reduce_shared(copies, [0], op, "all_reduce_shared")
        return copies[0]

    def all_reduce_every(self, copies: Sequence[Tensor], op: Any = dist.ReduceOp.SUM) -> None:
        """The same, but every rank's own copy becomes the result: as many times more is written."""
        self._reduce_shared(copies, range(self.world), op, "all_reduce_every")

    def reduce_scatter_shared(self, copies: Sequence[Tensor], op: Any = dist.ReduceOp.SUM) -> Tensor:
        """Reduce this rank's part only, into this rank's own copy; gives the part (see `parts`)."""
        self._reduce_shared(copies, [self.index], op, "reduce_scatter_shared")
        return copies[self.index][parts(copies[0].numel(), self.world)[self.index]]

    def _reduce_shared(self, copies: Sequence[Tensor], into: Sequence[int], op: Any, what: str) -> None:
        self.memory.barrier(what)
        mine = parts(copies[0].numel(), self.world)[self.index]
        rows = [copy[mine] for copy in copies]
        reduce_rows(rows, [rows[rank] for rank in into], op)
        self.memory.barrier(what)

    # Collectives.

    def meet(self) -> None:
        self.memory.barrier("barrier")

    def reduce_row(self, row: Tensor, op: Any, root: int | None) -> None:
        """A rank's own part is copied neither in nor out: it goes from the row into the reduction and back."""
        what, wanted = ("all_reduce", True) if root is None else ("reduce", self.index == root)
        me, others = self.index, [rank for rank in range(self.world) if rank != self.index]
        out: list[tuple[Tensor, Tensor]] = []
        for piece in cut(row, _length(row)):
            part = parts(piece.numel(), self.world)
            buffers = [buffer.view(row.dtype) for buffer in self._buffers()]
            for rank in others:
                buffers[me][part[rank]].copy_(piece[part[rank]])
            self.memory.barrier(what)  # which says as well that the piece before is reduced
            _copy(out)
            rows = [(piece if rank == me else buffers[rank])[part[me]] for rank in range(self.world)]
            reduced = buffers[me][part[me]]
            reduce_rows(rows, [reduced, rows[me]] if wanted else [reduced], op)
            out = [(piece[part[rank]], buffers[rank][part[rank]]) for rank in others] if wanted else []
        self.memory.barrier(what)
        _copy(out)

    def broadcast_row(self, row: Tensor, root: int) -> None:
        for piece in cut(row, _length(row)):
            copies = self._offer([piece] if self.index == root else [], piece, "broadcast")
            if self.index != root:
                piece.copy_(copies[root])

    def gather_rows(self, rows: Sequence[Tensor], row: Tensor, root: int | None) -> None:
        length = _length(row)
        for piece, *targets in zip(cut(row, length), *(cut(each, length) for each in rows), strict=True):
            copies = self._offer([piece], piece, "all_gather" if root is None else "gather")
            for target, copy in zip(targets, copies, strict=False):
                target.copy_(copy)

    def scatter_rows(self, row: Tensor, rows: Sequence[Tensor], root: int | None) -> None:
        sources = range(self.world) if root is None else [root]
        length = _length(row, self.world)
        targets = row.view(len(sources), row.numel() // len(sources)).split(length, dim=1)  # type: ignore[no-untyped-call]
        offers = zip(*(cut(each, length) for each in rows), strict=True) if rows else [()] * len(targets)
        for target, pieces in zip(targets, offers, strict=True):
            slots = self._offer(pieces, target[0], "all_to_all" if root is None else "scatter", self.index)
            for into, source in zip(target, sources, strict=True):
                into.copy_(slots[source])

    def reduce_scatter_rows(self, row: Tensor, rows: Sequence[Tensor], op: Any) -> None:
        length = _length(row, self.world)
        for target, *pieces in zip(cut(row, length), *(cut(each, length) for each in rows), strict=True):
            reduce_rows(self._offer(pieces, target, "reduce_scatter", self.index), [target], op)

    def send_row(self, row: Tensor, to: int, tag: int) -> Finish:
        return self.mail.send(row, to, tag)

    def receive_row(self, row: Tensor, source: int, tag: int) -> Finish:
        return self.mail.receive(row, source, tag)

    def _buffers(self) -> list[Tensor]:
        """Every rank's buffer, the next in turn."""
        self.turn = (self.turn + 1) % BUFFERS
        return [self.memory.buffer(rank, self.turn) for rank in range(self.world)]

    def _offer(self, pieces: Sequence[Tensor], like: Tensor, what: str, slot: int = 0) -> list[Tensor]:
        """Put pieces, all as long as `like`, into this rank's buffer, wait for all; gives one slot of every rank's."""
        buffers = self._buffers()
        size = like.numel() * like.element_size()
        step = -(-size // LINE) * LINE
        for number, piece in enumerate(pieces):
            buffers[self.index][number * step : number * step + size].view(like.dtype).copy_(piece)
        self.memory.barrier(what)
        return [buffer[slot * step : slot * step + size].view(like.dtype) for buffer in buffers]


def _copy(pairs: Sequence[tuple[Tensor, Tensor]]) -> None:
    for target, source in pairs:
        target.copy_(source)


def _length(row: Tensor, slots: int = 1) -> int:
    """Elements of a piece, of which so many fit a buffer."""
    return BUFFER // slots // LINE * LINE // row.element_size()
