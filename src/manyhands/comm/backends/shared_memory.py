"""Shared memory: memory that all ranks of one host share, and the flags by which they wait for each other.

    flags      a line a rank: how many barriers it has reached
    counters   a line a pair of ranks: messages sent, messages taken
    buffers    three a rank, for collectives, used in turn
    boxes      one a pair of ranks, for messages

Each word is written by one rank alone, so that no atomic operations are needed; x86 keeps the order of writes.
The memory has no name in any file system (memfd), so that nothing is left behind however a rank ends.
"""

import json
import mmap
import os
import platform
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from manyhands.comm.backends.reduction import cut
from manyhands.comm.backends.spin_wait import wait_until
from manyhands.comm.ranks.status_files import peer_exited
from manyhands.comm.ranks.timeouts import missed
from manyhands.compat import Store
from manyhands.errors import RankError

LINE = 64  # bytes of a cache line: flags that share one slow each other down
BUFFER, BUFFERS = 1 << 20, 3  # bytes, few enough to stay in the caches; of each rank
SLOT, SLOTS = 256 << 10, 16  # bytes of a message's piece; pieces that wait in a box while who sent them computes


class SharedMemory:
    """One rank's view of the shared memory."""

    def __init__(self, store: Store, rank: int, world: int, timeout: float) -> None:
        self.store, self.rank, self.world, self.timeout = store, rank, world, timeout
        self.moving: dict[tuple[int, int], deque[Iterator[None]]] = {}  # messages under way, of each pair in order
        self.barriers = self.segments = 0
        self.boxes = (world + world * world) * LINE
        self.buffers = self.boxes + world * world * SLOT * SLOTS
        self.processes, cores = zip(*self._told(os.getpid(), sorted(os.sched_getaffinity(0))), strict=True)
        self.crowded = len(set().union(*cores)) < world
        memory, descriptor = self._map(self.buffers + BUFFERS * world * BUFFER)
        self.bytes = torch.frombuffer(memory, dtype=torch.uint8)
        self.words = memoryview(memory)[: self.boxes].cast("q")
        self.flags = self.words[: world * LINE // 8 : LINE // 8]
        self._everyone_has(descriptor)

    def _told(self, *facts: Any) -> list[Any]:
        """What each rank tells of itself."""
        self.store.set(f"facts{self.rank}", json.dumps(facts))
        return [json.loads(self.store.get(f"facts{rank}")) for rank in range(self.world)]

    # Memory.

    def _map(self, size: int) -> tuple[mmap.mmap, int]:
        """Map memory that rank 0 makes and the others find by its descriptor."""
        if platform.machine() not in ("x86_64", "AMD64"):
            raise RankError(f"backend shm relies on x86-64's order of writes, this is {platform.machine()}: use gloo")
        self.segments += 1
        host, key = Path("/proc/sys/kernel/random/boot_id").read_text().strip(), f"segment{self.segments}"
        if self.rank == 0:
            descriptor = os.memfd_create("manyhands")
            os.ftruncate(descriptor, size)
            self.store.set(key, f"{host} /proc/{os.getpid()}/fd/{descriptor}")
        else:
            where, address = self.store.get(key).decode().split()
            if where != host:
                raise RankError(f"rank {self.rank} is on another host than rank 0: backend shm needs one, use gloo")
            try:
                descriptor = os.open(address, os.O_RDWR)
            except OSError as error:
                raise RankError(f"rank {self.rank} cannot open the memory of rank 0, {address}: {error}") from None
        return mmap.mmap(descriptor, size), descriptor

    def _everyone_has(self, descriptor: int) -> None:
        self.barrier("the start of the group")
        os.close(descriptor)

    def empty(self, count: int, dtype: torch.dtype) -> list[Tensor]:
        """Memory of its own for `count` elements a rank, all ranks' in order. It is freed with the last tensor.

        Pages count when they are first touched: rows that nobody writes cost nothing.
        """
        size = max(-(-count * dtype.itemsize // mmap.PAGESIZE), 1) * mmap.PAGESIZE
        memory, descriptor = self._map(self.world * size)
        self._everyone_has(descriptor)
        rows = cut(torch.frombuffer(memory, dtype=torch.uint8), size)
        return [row[: count * dtype.itemsize].view(dtype) for row in rows]

    def buffer(self, rank: int, turn: int) -> Tensor:
        """One of a rank's buffers for collectives."""
        start = self.buffers + (BUFFERS * rank + turn) * BUFFER
        return self.bytes[start : start + BUFFER]

    def slot(self, source: int, to: int, number: int) -> Tensor:
        """Where `source` puts a piece of a message that `to` takes."""
        start = self.boxes + ((source * self.world + to) * SLOTS + number % SLOTS) * SLOT
        return self.bytes[start : start + SLOT]

    def counter(self, source: int, to: int) -> int:
        """The word that counts the pieces sent; the next word counts those taken."""
        return (self.world + source * self.world + to) * LINE // 8

    # Waiting.

    def barrier(self, what: str) -> None:
        """Wait until every rank is here."""
        self.barriers += 1
        wanted, flags = self.barriers, self.flags
        flags[self.rank] = wanted
        self.wait(
            lambda: min(flags.tolist()) >= wanted,
            lambda: [rank for rank, reached in enumerate(flags.tolist()) if reached < wanted],
            what,
        )

    def wait(self, ready: Callable[[], bool], late: Callable[[], list[int]], what: str) -> None:
        """Wait for other ranks while messages move on; after the time-out, or their end, names those that are late."""

        def moved_and_ready() -> bool:
            self.move()
            return ready()

        def gone() -> list[int]:
            return [rank for rank in late() if not Path(f"/proc/{self.processes[rank]}").exists()]

        look = moved_and_ready if self.moving else ready
        if not wait_until(look, self.timeout, crowded=self.crowded, in_vain=lambda: bool(gone())):
            if ranks := gone():
                raise peer_exited(ranks, self.rank, what)
            raise missed(late(), self.rank, what, self.timeout)

    def move(self) -> None:
        """Take messages as far as they go now."""
        for messages in self.moving.values():
            while messages and next(messages[0], self) is self:
                messages.popleft()
