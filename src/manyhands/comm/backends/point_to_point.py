"""Point to point: messages between two ranks through the boxes of a shared memory.

A message goes in pieces, after a head that says its tag and its size; a box holds a few, so that sender and receiver
work at once. Messages of a pair with the same tag keep their order; one that is not asked for yet is put aside.
Nothing runs in the background: whoever waits, for whatever, moves all mail forward.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from manyhands.comm.backends.reduction import cut
from manyhands.comm.backends.shared_memory import SLOT, SLOTS, SharedMemory

Key = tuple[int, int]


@dataclass(eq=False)
class _Letter:
    """A message to this rank: where its bytes go, and whether all have come."""

    row: Tensor
    come: bool = False


class PointToPoint:
    """One rank's letters, in and out."""

    def __init__(self, memory: SharedMemory) -> None:
        self.memory = memory
        self.moved: dict[Key, int] = {}  # pieces so far, of each pair
        self.wanted: dict[Key, deque[_Letter]] = defaultdict(deque)  # by source and tag
        self.early: dict[Key, deque[_Letter]] = defaultdict(deque)

    def send(self, row: Tensor, to: int, tag: int) -> Callable[[], None]:
        """Begin to send; gives the function that waits until all is in the box."""
        lane = self.memory.moving.setdefault((self.memory.rank, to), deque())
        letter = self._outgoing(row.view(torch.uint8), to, tag)
        lane.append(letter)
        self.memory.move()
        return lambda: self.memory.wait(lambda: letter not in lane, lambda: [to], "send")

    def receive(self, row: Tensor, source: int, tag: int) -> Callable[[], None]:
        """Begin to receive; gives the function that waits until all has come."""
        self.memory.moving.setdefault((source, self.memory.rank), deque([self._incoming(source)]))
        into, early = row.view(torch.uint8), self.early[source, tag]
        letter = early.popleft() if early else _Letter(into)
        if letter.row is into:
            self.wanted[source, tag].append(letter)
        self.memory.move()

        def finish() -> None:
            self.memory.wait(lambda: letter.come, lambda: [source], "receive")
            if letter.row is not into:
                into.copy_(letter.row)

        return finish

    def _outgoing(self, row: Tensor, to: int, tag: int) -> Iterator[None]:
        """Yields whenever it has to wait for the other rank."""
        pair = self.memory.rank, to
        for piece in (torch.tensor([tag, row.numel()]).view(torch.uint8), *cut(row, SLOT)):
            while self._in_box(pair) >= SLOTS:
                yield
            self._slot(pair)[: piece.numel()].copy_(piece)
            self._passed(pair, 0)

    def _incoming(self, source: int) -> Iterator[None]:
        """All messages of a rank, for ever; yields whenever it has to wait."""
        pair = source, self.memory.rank
        while True:
            while not self._in_box(pair):
                yield
            tag, size = self._slot(pair)[:16].view(torch.int64).tolist()
            self._passed(pair, 1)
            if wanted := self.wanted[source, tag]:
                letter = wanted.popleft()
            else:
                letter = _Letter(torch.empty(size, dtype=torch.uint8))
                self.early[source, tag].append(letter)
            if letter.row.numel() != size:
                raise ValueError(f"rank {source} sent {size} bytes, {letter.row.numel()} were asked for")
            for piece in cut(letter.row, SLOT):
                while not self._in_box(pair):
                    yield
                piece.copy_(self._slot(pair)[: piece.numel()])
                self._passed(pair, 1)
            letter.come = True

    def _in_box(self, pair: Key) -> int:
        """Pieces that were sent, and not yet taken."""
        memory, sent = self.memory, self.memory.counter(*pair)
        moved, out = self.moved.get(pair, 0), pair[0] == memory.rank
        return moved - memory.words[sent + 1] if out else memory.words[sent] - moved

    def _slot(self, pair: Key) -> Tensor:
        return self.memory.slot(*pair, self.moved.get(pair, 0))

    def _passed(self, pair: Key, side: int) -> None:
        """Count a piece as sent (0) or taken (1)."""
        self.moved[pair] = number = self.moved.get(pair, 0) + 1
        self.memory.words[self.memory.counter(*pair) + side] = number
