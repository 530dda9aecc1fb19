"""Feed: a rank's batches; batch i of epoch e holds the same samples whatever the number of ranks.

A feed yields small tuples of tensors and knows, in `prepare`, how one becomes a model's input and its labels.
`prepare` runs inside the training step, where it can be compiled or captured with the rest:

    feed      what a batch is            what `prepare` does
    device    row numbers                gathers rows of the set that lives on the device, normalizes
    host      rows and labels            normalizes (rows were gathered and copied ahead by a thread)
    loader    finished samples           nothing (torch's DataLoader, as the usual script has it)
"""

import queue
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from manyhands.data.dataset import Split
from manyhands.data.normalize import Normalize

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


class Feed(Protocol):
    """What the training loop needs of the data."""

    def __len__(self) -> int:
        """Batches in the first epoch."""

    def count(self, epoch: int) -> int:
        """Batches in any epoch: `train.grow` makes them fewer and larger."""

    def epoch(self, number: int, start: int = 0) -> Iterator[Batch]:
        """The batches of one epoch, from batch `start` on."""

    def share(self, number: int, epoch: int = 0) -> "Share":
        """How much of batch `number` of an epoch is this rank's."""

    def prepare(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The model's input and the labels."""


def order(length: int, seed: int, epoch: int) -> NDArray[np.int64]:
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
        return np.arange(self.length) if self.seed is None else order(self.length, self.seed, epoch)

    def epoch(self, number: int, start: int = 0) -> Iterator[NDArray[np.int64]]:
        rows, size = self.order(number), self.size(number)
        for begin in range(start * size, self.length, size):
            batch = rows[begin : begin + size]
            mine = part_of(batch, self.rank, self.world)
            yield mine if len(mine) else batch[:1]


class DeviceFeed:
    """The whole split as one tensor on the device: no copy and no loader while training."""

    def __init__(self, split: Split, batches: Batches, normalize: Normalize, device: torch.device) -> None:
        self.batches, self.normalize, self.device = batches, normalize, device
        self.inputs = torch.from_numpy(split.inputs[split.index]).to(device)
        self.labels = torch.from_numpy(split.labels[split.index]).to(device)

    def __len__(self) -> int:
        return len(self.batches)

    def count(self, epoch: int) -> int:
        return self.batches.count(epoch)

    def epoch(self, number: int, start: int = 0) -> Iterator[Batch]:
        # One copy of the epoch's order to the device; the batches are views of it.
        parts = list(self.batches.epoch(number, start))
        rows = torch.from_numpy(np.concatenate(parts)) if parts else torch.empty(0, dtype=torch.int64)
        for part in torch.split(rows.to(self.device), [len(part) for part in parts]):
            yield (part,)

    def share(self, number: int, epoch: int = 0) -> Share:
        return self.batches.share(number, epoch)

    def of(self, rows: NDArray[np.int64]) -> Batch:
        return (torch.from_numpy(rows).to(self.device),)

    def prepare(self, batch: Batch) -> tuple[Tensor, Tensor]:
        (rows,) = batch
        return self.normalize(self.inputs.index_select(0, rows)), self.labels.index_select(0, rows)


class HostFeed:
    """For a split that does not fit on the device: a thread gathers and copies a few batches ahead."""

    AHEAD = 3

    def __init__(self, split: Split, batches: Batches, normalize: Normalize, device: torch.device) -> None:
        self.split, self.batches, self.normalize, self.device = split, batches, normalize, device

    def __len__(self) -> int:
        return len(self.batches)

    def count(self, epoch: int) -> int:
        return self.batches.count(epoch)

    def epoch(self, number: int, start: int = 0) -> Iterator[Batch]:
        return ahead((self.of(rows) for rows in self.batches.epoch(number, start)), self.AHEAD)

    def share(self, number: int, epoch: int = 0) -> Share:
        return self.batches.share(number, epoch)

    def of(self, rows: NDArray[np.int64]) -> Batch:
        index = self.split.index[rows]
        batch = (torch.from_numpy(self.split.inputs[index]), torch.from_numpy(self.split.labels[index]))
        if self.device.type == "cpu":
            return batch
        return tuple(each.pin_memory().to(self.device, non_blocking=True) for each in batch)

    def prepare(self, batch: Batch) -> tuple[Tensor, Tensor]:
        inputs, labels = batch
        return self.normalize(inputs), labels


def ahead(items: Iterator[Batch], depth: int) -> Iterator[Batch]:
    """Run an iterator in a thread, at most `depth` items ahead; its error is raised here."""
    done, stopped = object(), threading.Event()
    waiting: queue.Queue[Any] = queue.Queue(depth)

    def put(item: Any) -> bool:
        while not stopped.is_set():
            try:
                waiting.put(item, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def work() -> None:
        try:
            for item in items:
                if not put(item):
                    return
            put(done)
        except BaseException as error:
            put(error)

    thread = threading.Thread(target=work, name="feed", daemon=True)
    thread.start()
    try:
        while (item := waiting.get()) is not done:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stopped.set()
        thread.join()
