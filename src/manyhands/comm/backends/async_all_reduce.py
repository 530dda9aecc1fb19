"""Async all reduce: sums over all ranks, one a step, that come while a rank goes on with steps to follow.

The rows of a step lie in one slot of a ring. A rank fills its row, sends it, and asks now and then what has come:

    step        0    1    2    3    4    5          ring of 3 slots
    slot        0    1    2    0    1    2

    gloo, nccl  an all-reduce by torch, in the background
    mpi         Iallreduce, which moves on whenever a rank asks
    shm         nothing is in the background: a rank counts the rows that it has sent, and whoever finds those of all
                adds them up in the order of ranks, and counts them as taken; only then is the slot filled anew

Every rank's sum of a step is the same to the bit.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from manyhands.comm.backends.mpi import MpiGroup
from manyhands.comm.backends.reduction import reduce_rows
from manyhands.comm.backends.shm import ShmGroup

SENT, TAKEN = 0, 1


class Sums(Protocol):
    """One rank's side. Steps are filled, sent and taken in order, at most as many ahead as there are slots."""

    def row(self, step: int) -> Tensor:
        """Where this rank's row of a step goes."""

    def send(self, step: int) -> None:
        """The row is filled."""

    def come(self, step: int) -> bool:
        """Whether the sum can be taken without waiting."""

    def take(self, step: int) -> Tensor:
        """The sum; it stays until the next is taken."""


def sums(size: int, dtype: torch.dtype, device: torch.device, slots: int) -> Sums:
    """Of all ranks, by whatever backend they have. All ranks call it together."""
    group = dist.group.WORLD
    if isinstance(group, ShmGroup):
        return SharedSums(group, size, dtype, slots)
    return SentSums(torch.zeros(slots, size, dtype=dtype, device=device))


class SentSums:
    """Rows that are sent, and become the sum where they are."""

    def __init__(self, rows: Tensor) -> None:
        self.rows = rows
        self.under_way: dict[int, tuple[Callable[[], bool], Callable[[], object]]] = {}

    def row(self, step: int) -> Tensor:
        return self.rows[step % len(self.rows)]

    def send(self, step: int) -> None:
        row, group = self.row(step), dist.group.WORLD
        if isinstance(group, MpiGroup):
            self.under_way[step] = group.sum_later(row)
        else:
            work = dist.all_reduce(row, async_op=True)
            self.under_way[step] = work.is_completed, work.wait

    def come(self, step: int) -> bool:
        return self.under_way[step][0]()

    def take(self, step: int) -> Tensor:
        _, finish = self.under_way.pop(step)
        finish()
        return self.row(step)


class SharedSums:
    """Rows in shared memory."""

    def __init__(self, group: ShmGroup, size: int, dtype: torch.dtype, slots: int) -> None:
        self.group, self.rank = group, group.index
        self.rows = [rows.view(slots, size) for rows in group.shared(slots * size, dtype)]
        # Each word is written by one rank alone, and x86 keeps the order of writes: a row is there when it is counted.
        self.counts = [words.numpy() for words in group.shared(2, torch.int64)]
        self.total = torch.zeros(size, dtype=dtype)

    def row(self, step: int) -> Tensor:
        before = step - len(self.rows[0])  # whose rows are in the slot
        self._wait(TAKEN, before)
        return self._of(step)[self.rank]

    def send(self, step: int) -> None:
        self.counts[self.rank][SENT] = step + 1

    def come(self, step: int) -> bool:
        return not self._late(SENT, step)

    def take(self, step: int) -> Tensor:
        self._wait(SENT, step)
        reduce_rows(self._of(step), [self.total])
        self.counts[self.rank][TAKEN] = step + 1
        return self.total

    def _of(self, step: int) -> Sequence[Tensor]:
        return [rows[step % len(rows)] for rows in self.rows]

    def _late(self, what: int, step: int) -> list[int]:
        """The ranks that have not sent, or taken, that much."""
        return [rank for rank, counts in enumerate(self.counts) if counts[what] <= step]

    def _wait(self, what: int, step: int) -> None:
        self.group.memory.wait(lambda: not self._late(what, step), lambda: self._late(what, step), "all_reduce")
