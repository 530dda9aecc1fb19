"""Work queue: the work that is handed out to workers that do not keep step, item by item.

    batch 7    part 0 ✓   part 1 ✓   part 2 …   part 3 ✓        an item is one part of one batch
    batch 8    part 0 …   part 1 …   part 2     part 3          … a worker is at it

A batch is complete when all its parts are. Up to where work is handed out, `horizon`, everything is done before
anything later begins: there weights can be looked at, kept and taken up again.
"""

from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True)
class Item:
    """One part of one batch; `step` counts batches from the beginning of the training."""

    epoch: int
    batch: int
    part: int
    step: int


class WorkQueue:
    """What is to be done, who is at it, and what has come of it."""

    def __init__(self, workers: int, own: bool) -> None:
        """`own`: each worker does the part that has its number; otherwise whoever comes takes what is next."""
        self.own = own
        self.workers = workers
        self.waiting: list[deque[Item]] = [deque() for _ in range(workers if own else 1)]
        self.doing: dict[int, Item] = {}
        self.open: dict[int, list[float]] = {}  # losses of the parts of each step that have come
        self.finished = 0  # items
        self.complete: deque[float] = deque()  # losses of steps, in the order in which they became complete

    def plan(self, epoch: int, first: int, last: int, step: int) -> None:
        """Open the batches from `first` to before `last` of an epoch; the first is step `step`."""
        for batch in range(first, last):
            self.open[step + batch - first] = []
            for part in range(self.workers):
                self.waiting[part if self.own else 0].append(Item(epoch, batch, part, step + batch - first))

    def take(self, worker: int) -> Item | None:
        """The next item for a worker; None while there is nothing for it."""
        queue = self.waiting[worker if self.own else 0]
        if not queue:
            return None
        self.doing[worker] = item = queue.popleft()
        return item

    def done(self, worker: int, loss: float) -> None:
        """A worker has done its item; `loss` weighs by the part's share of the batch."""
        item = self.doing.pop(worker)
        self.finished += 1
        losses = self.open[item.step]
        losses.append(loss)
        if len(losses) == self.workers:
            self.complete.append(sum(self.open.pop(item.step)))

    def lost(self, worker: int) -> None:
        """A worker will not finish what it took: somebody else shall."""
        if (item := self.doing.pop(worker, None)) is not None:
            self.waiting[worker if self.own else 0].appendleft(item)

    @property
    def at_rest(self) -> bool:
        """Whether all that was opened is done."""
        return not self.open


def horizon(step: int, batch: int, per_epoch: int, total: int, every: int | None) -> int:
    """How many batches, from batch `batch` of an epoch on, all do before they rest.

    To the end of the epoch or of the training, or to the next checkpoint.
    """
    count = min(per_epoch - batch, total - step)
    return min(count, every - step % every) if every else count
