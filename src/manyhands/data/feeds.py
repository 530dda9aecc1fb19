"""Feeds: where a rank's batches come from: the device itself, or the host, prefetched."""

import queue
import threading
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from manyhands.data.dataset import Split
from manyhands.data.normalize import Normalize
from manyhands.data.sampler import Batch, Batches, Share


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
