"""Gossip: every worker has weights of its own, and after each step it meets another: both go on with their mean.

    worker 0   ─ step ─ meets 1 ─ step ─ …      sends its weights x, gets y, moves by (y - x) / 2
    worker 1   ─────── step ──────── step       a thread answers at once; it moves by (x - y) / 2 when its step is done

What one gains the other gives, so the mean of all is moved by gradients alone. Nobody waits for a step of another; one
that has ended is passed over, and one that comes later begins with the weights of whom it meets first.
"""

import threading
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from manyhands.comm.connection import Connection, Gone, Head, Listener, connect
from manyhands.data.sampler import Share
from manyhands.engine.asynchronous.work_queue import Item
from manyhands.engine.parameters.flat_parameters import FlatParameters
from manyhands.engine.parameters.state_messages import told_state
from manyhands.engine.strategies.single_process import SingleProcess
from manyhands.optim.factory import set_lr
from manyhands.plan.consistency import partners


class Gossip(SingleProcess):
    """One worker's side of it."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        clip: float | None,
        *,
        rank: int,
        world: int,
        topology: str,
        seed: int,
        word: str,
    ) -> None:
        super().__init__(model, optimizer, clip)
        self.rank, self.world, self.topology, self.seed, self.word = rank, world, topology, seed, word
        self.flat = FlatParameters(model)
        self.row, self.owed = self.flat.row(), self.flat.row()  # weights, and what meetings have yet to add to them
        self.flat.read(self.row)
        self.flat.move_in(self.row)
        self.steps = 0
        self.changing = threading.Lock()
        self.ports: dict[int, int] = {}
        self.known: dict[int, tuple[int, Connection]] = {}  # by rank: the port and the connection to it
        self.listener = Listener(word, self._answer)

    def _answer(self, connection: Connection, hello: Head) -> None:
        """Another worker's visits."""
        while True:
            head, rows = connection.receive()
            with self.changing:
                mine = self.row + self.owed
                if head["kind"] == "meet":
                    self.owed.add_(rows[0] - mine, alpha=0.5)
            connection.send({}, [mine])

    def begin(self, item: Item, order: Head) -> None:
        set_lr(self.optimizer, order["rate"])
        self.ports = {int(rank): port for rank, port in order["peers"].items()}

    def join(self, ports: Mapping[str, int]) -> None:
        """Come later: take the weights of the first who answers."""
        self.ports = {int(rank): port for rank, port in ports.items()}
        if (theirs := self._visit("look", None)) is not None:
            self.row.copy_(theirs)

    def update(self) -> None:
        with self.changing:
            super().update()
            self._settle()
            mine = self.row.clone()
        theirs = self._visit("meet", mine)
        self.steps += 1
        if theirs is not None:
            with self.changing:
                self.owed.add_(theirs - mine, alpha=0.5)
                self._settle()

    def _settle(self) -> None:
        self.row.add_(self.owed)
        self.owed.zero_()

    def _visit(self, kind: str, mine: Tensor | None) -> Tensor | None:
        """Meet the first, of those whose turn it is, who is there; its weights."""
        for other in partners(self.topology, self.rank, self.steps, self.world, self.seed):
            try:
                if connection := self._wire(other):
                    _, (theirs,) = connection.ask({"kind": kind}, [] if mine is None else [mine])
                    return theirs
            except Gone:
                self.known.pop(other)[1].close()
        return None

    def _wire(self, other: int) -> Connection | None:
        """The connection to a worker; a new one where it has begun again."""
        port = self.ports.get(other)
        if port is None:
            return None
        if other not in self.known or self.known[other][0] != port:
            try:
                self.known[other] = port, connect(port, self.word, {"rank": self.rank})
            except Gone:
                return None
        return self.known[other][1]

    def told(self) -> tuple[Head, list[Tensor]]:
        """Weights and the optimizer's state, as rows."""
        with self.changing:
            self._settle()
            state = self.optimizer.state_dict()
            head, rows = told_state(self.flat.cut(state), state["param_groups"])
            return head, [self.row.clone(), *rows]

    def take(self, row: Tensor, state: dict[str, Any] | None) -> None:
        """Begin with these."""
        with self.changing:
            self.row.copy_(row)
        if state is not None:
            self.load_state(state)

    def close(self) -> None:
        self.listener.close()
        for _, connection in self.known.values():
            connection.close()

    def weight(self, share: Share) -> Share:
        """The mean over its own part: each worker learns by itself."""
        return Share(share.mine, share.mine, share.mine)
