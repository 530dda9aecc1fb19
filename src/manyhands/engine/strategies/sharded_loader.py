"""Sharded loader: a user's own DataLoader, of whose batches each rank gets its part.

global batch       0 1 2 3 4 5 6 7 8 9 │ 10 11        the loader's own, whatever sampler it has
rank 0 of 3        0 1 2 3             │ 10           weight 4/10, then 1/2
rank 1                     4 5 6       │    11               3/10       1/2
rank 2                           7 8 9 │ 10                  3/10       0: a stand-in, for the others wait
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from torch.utils.data import DataLoader, DistributedSampler, IterableDataset

from manyhands.comm.ranks.rank_group import Team
from manyhands.data.sampler import Share, share_of
from manyhands.errors import DataError

TOLD = 1000  # batches that the leader tells at a time: samplers may be endless
YOURSELF = "pass loader=None, and let each rank read its own part: mh.rank() of mh.world()"


@dataclass
class Now:
    """What this process works on: its share of the batch that was handed out last, None between epochs."""

    share: Share | None = None

    def weight(self, world: int) -> float:
        """Of this rank's mean in the mean over all ranks."""
        return self.share.weight if self.share else 1 / world

    @property
    def is_stand_in(self) -> bool:
        return self.share is not None and self.share.mine == 0


CURRENT_SHARE = Now()


def cut(batch: Sequence[Any], rank: int, world: int) -> tuple[list[Any], Share]:
    """One rank's part of a global batch."""
    shares = [share_of(len(batch), each, world) for each in range(rank + 1)]
    start, mine = sum(share.mine for share in shares[:-1]), shares[-1]
    return list(batch[start : start + mine.mine] or batch[:1]), mine


class ShardedBatchSampler:
    """A batch sampler: this rank's part of each batch of another one.

    The leader alone draws, in the way and in the order in which one process would, and tells the others: so they
    agree whatever the sampler draws from, and see the batches that one process sees.
    """

    def __init__(self, batches: Any, team: Team) -> None:
        self.batches, self.team = batches, team
        self.ahead: deque[Share] = deque()  # of batches that are on their way through the loader's processes

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[list[Any]]:
        ahead, drawn = self.ahead, iter(self.batches) if self.team.is_leader else iter(())
        while told := self.team.broadcast_json([list(batch) for batch in islice(drawn, TOLD)]):
            for batch in told:
                mine, share = cut(batch, self.team.rank, self.team.world)
                ahead.append(share)
                yield mine


class ShardedDataLoader(DataLoader[Any]):
    """A loader like the given one, in everything but the batches, which are this rank's."""

    def __init__(self, loader: DataLoader[Any], team: Team) -> None:
        _check(loader)
        self.shares = ShardedBatchSampler(loader.batch_sampler, team)
        # All of the loader's settings, those of torch's releases to come included. Its batch size stays the global.
        vars(self).update({**vars(loader), "batch_sampler": self.shares, "in_order": True, "_iterator": None})

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        ahead = self.shares.ahead = deque()
        for batch in super().__iter__():
            CURRENT_SHARE.share = ahead.popleft()
            yield batch
        CURRENT_SHARE.share = None


def _check(loader: DataLoader[Any]) -> None:
    if not isinstance(loader, DataLoader):
        raise DataError(f"loader is of class {type(loader).__name__}, torch's DataLoader is needed: {YOURSELF}")
    if isinstance(loader.dataset, IterableDataset):
        raise DataError(f"loader has an IterableDataset, whose samples cannot be dealt out by number: {YOURSELF}")
    if loader.batch_sampler is None:
        raise DataError(f"loader has batch_size=None, so that its batches cannot be cut: give it one, or {YOURSELF}")
    if isinstance(loader.sampler, DistributedSampler):
        raise DataError("loader has a DistributedSampler: leave it out, for parallelize deals the samples out itself")
