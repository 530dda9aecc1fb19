"""Sampler: a rank's batches; batch i of epoch e holds the same samples whatever the number of ranks.

A feed yields small tuples of tensors and knows, in `prepare`, how one becomes a model's input and its labels.
`prepare` runs inside the training step, where it can be compiled or captured with the rest:

    feed      what a batch is            what `prepare` does
    device    row numbers                gathers rows of the set that lives on the device, normalizes
    host      rows and labels            normalizes (rows were gathered and copied ahead by a thread)
    loader    finished samples           nothing (torch's DataLoader, as the usual script has it)
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Batch = tuple[Tensor, ...]


@dataclass(frozen=True)
class Share:
    """A rank's part of a batch, in samples.

    A rank of which there is nothing in a small last batch gets a stand-in sample all the same, since the others
    wait for it wherever ranks exchange; it weighs nothing.
    """

    mine: int
    whole: int
    most: int  # the largest share of a rank

    @property
    def weight(self) -> float:
        return self.mine / self.whole


def epoch_order(length: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """The order of the samples in one epoch: a function of seed and epoch alone."""
    return np.random.default_rng([seed, epoch]).permutation(length)


def part_of(batch: NDArray[np.int64], rank: int, world: int) -> NDArray[np.int64]:
    """The part of a global batch that one rank computes; sizes differ by at most one sample."""
    return np.array_split(batch, world)[rank]


def share_of(whole: int, rank: int, world: int) -> Share:
    """How much `part_of` gives a rank of so many samples."""
    each, left = divmod(whole, world)
    return Share(each + (rank < left), whole, each + (left > 0))


class Batches:
    """Which rows are in which batch: shuffled by seed and epoch, or in order when `seed` is None.

    `size` is that of all epochs, or of each.
    """

    def __init__(self, length: int, size: int | Sequence[int], seed: int | None, rank: int = 0, world: int = 1) -> None:
        self.sizes = [size] if isinstance(size, int) else size
        self.length, self.seed, self.rank, self.world = length, seed, rank, world

    def size(self, epoch: int) -> int:
        return self.sizes[min(epoch, len(self.sizes) - 1)]

    def __len__(self) -> int:
        return self.count(0)

    def count(self, epoch: int) -> int:
        return -(-self.length // self.size(epoch))

    def share(self, number: int, epoch: int = 0) -> Share:
        size = self.size(epoch)
        return share_of(min(size, self.length - number * size), self.rank, self.world)

    def order(self, epoch: int) -> NDArray[np.int64]:
        return np.arange(self.length) if self.seed is None else epoch_order(self.length, self.seed, epoch)

    def epoch(self, number: int, start: int = 0) -> Iterator[NDArray[np.int64]]:
        rows, size = self.order(number), self.size(number)
        for begin in range(start * size, self.length, size):
            batch = rows[begin : begin + size]
            mine = part_of(batch, self.rank, self.world)
            yield mine if len(mine) else batch[:1]
