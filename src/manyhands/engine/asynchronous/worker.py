"""Worker: asks for work, does it, and tells what came of it, until there is none left."""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from manyhands.comm.connection import Connection, Head
from manyhands.data.feeds import DeviceFeed, HostFeed
from manyhands.data.sampler import Batches, Share, part_of, share_of
from manyhands.engine.asynchronous.work_queue import Item
from manyhands.engine.loop.context import Step
from manyhands.engine.seed import seed_of


class Apart(Protocol):
    """What the exchange of a worker that keeps no step with others has beside the usual."""

    def begin(self, item: Item, order: Head) -> None:
        """Before the step: weights and rate."""

    def weight(self, share: Share) -> Share:
        """How the part's loss counts in its gradients."""


class Worker:
    """One process's side; `batches` are those of the whole training, as one device sees them."""

    def __init__(
        self,
        connection: Connection,
        step: Step,
        strategy: Apart,
        feed: DeviceFeed | HostFeed,
        batches: Batches,
        workers: int,
        seed: int,
    ) -> None:
        """`seed`: of what layers draw for an item, whoever does it, and whether or not the training was resumed."""
        self.connection, self.step, self.strategy, self.feed = connection, step, strategy, feed
        self.batches, self.workers, self.seed = batches, workers, seed
        self.epoch, self.rows = -1, batches.order(0)

    def run(self, give: Callable[[], tuple[Head, list[Tensor]]], about: Callable[[], Head]) -> None:
        """`give` tells the worker's weights or buffers when the coordinator asks; `about`, what it took at the end."""
        done: Head = {}
        while True:
            order, _ = self.connection.ask({"kind": "next", **done})
            if order["kind"] == "end":
                self.connection.send(about())
                return
            if order["kind"] == "give":
                head, rows = give()
                self.connection.send({"kind": "given", **head}, rows)
                done = {}
                continue
            item = Item(*(order[name] for name in ("epoch", "batch", "part", "step")))
            done = {"loss": self._do(item, order)}

    def _do(self, item: Item, order: Head) -> float:
        """The loss of one part, weighed by its share of the batch."""
        if item.epoch != self.epoch:
            self.epoch, self.rows = item.epoch, self.batches.order(item.epoch)
        size = self.batches.size(item.epoch)
        whole = self.rows[item.batch * size : (item.batch + 1) * size]
        share = share_of(len(whole), item.part, self.workers)
        mine = part_of(whole, item.part, self.workers)
        self.strategy.begin(item, order)
        counted = self.strategy.weight(share)
        if not counted.whole:
            return 0.0
        torch.manual_seed(seed_of(self.seed, item.step, item.part))
        loss = float(self.step(self.feed.of(mine if len(mine) else whole[:1]), counted))
        return loss * counted.whole / share.whole
