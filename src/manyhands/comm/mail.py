"""Mail: messages between two ranks through the boxes of an arena.

A message goes in pieces; a box holds a few, so that sender and receiver work at once. Messages of a pair keep
their order. Nothing runs in the background: whoever waits, for whatever, moves all mail forward.
"""

from collections import deque
from collections.abc import Callable, Iterator

from torch import Tensor

from manyhands.comm.arena import SLOT, SLOTS, Arena
from manyhands.comm.reduction import cut


class Mail:
    """One rank's letters, in and out."""

    def __init__(self, arena: Arena) -> None:
        self.arena = arena
        self.moved: dict[tuple[int, int], int] = {}  # pieces so far

    def send(self, row: Tensor, to: int) -> Callable[[], None]:
        """Begin to send; gives the function that waits until all is in the box."""
        return self._post(row, self.arena.rank, to, "send")

    def receive(self, row: Tensor, source: int) -> Callable[[], None]:
        """Begin to receive; gives the function that waits until all has come."""
        return self._post(row, source, self.arena.rank, "receive")

    def _post(self, row: Tensor, source: int, to: int, what: str) -> Callable[[], None]:
        letter = self._move(row, source, to, out=what == "send")
        lane = self.arena.moving.setdefault((source, to), deque())
        lane.append(letter)
        self.arena.move()
        peer = to if what == "send" else source
        return lambda: self.arena.wait(lambda: letter not in lane, lambda: [peer], what)

    def _move(self, row: Tensor, source: int, to: int, *, out: bool) -> Iterator[None]:
        """Yields whenever it has to wait for the other rank."""
        arena, words, key = self.arena, self.arena.words, (source, to)
        sent = arena.counter(source, to)
        for piece in cut(row, SLOT // row.element_size()):
            number = self.moved.get(key, 0)
            while (number - words[sent + 1] >= SLOTS) if out else (words[sent] <= number):
                yield
            slot = arena.slot(source, to, number)[: piece.numel() * piece.element_size()].view(piece.dtype)
            if out:
                slot.copy_(piece)
            else:
                piece.copy_(slot)
            self.moved[key] = number + 1
            words[sent if out else sent + 1] = number + 1
