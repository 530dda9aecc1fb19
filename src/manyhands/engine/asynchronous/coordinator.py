"""Coordinator: hands out the work of a training whose workers do not keep step, and hears what comes of it.

    coordinator   the loop: schedule, metrics, validation, checkpoints, as one device has them
       │ items, losses
    workers     gradients          ── weights and gradients ──  servers, or each other

To the loop it is a step: each call gives the loss of the next batch that is complete. At the end of an epoch, and
wherever a checkpoint is due, all rest, and the coordinator's own model and optimizer become those of the training.
"""

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from manyhands.comm.connection import Connection, Gone, Head, Listener
from manyhands.comm.ranks.stopped import is_stopped
from manyhands.data.sampler import Batch, Share
from manyhands.engine.asynchronous.work_queue import WorkQueue, horizon
from manyhands.engine.parameters.flat_parameters import FlatParameters
from manyhands.engine.parameters.state_messages import buffers_of, mean_of, set_buffers, state_of, told_state
from manyhands.engine.strategies.single_process import SingleProcess
from manyhands.errors import RankError
from manyhands.plan.tensor_layout import parts


class Coordinator:
    """The step of the loop, and the door that workers and servers come to."""

    def __init__(
        self,
        strategy: SingleProcess,
        workers: int,
        servers: int,
        *,
        own: bool,
        word: str,
        count: Callable[[int], int],
        total: int,
        every: int | None,
        rate: Callable[[int], float],
        timeout: float,
    ) -> None:
        """`own`: worker i does part i of every batch, and none can be missing.

        `count`: batches of each epoch; `rate`: of each step.
        """
        self.strategy, self.workers, self.servers, self.own = strategy, workers, servers, own
        self.count, self.total, self.every = count, total, every
        self.rate, self.timeout = rate, timeout
        self.flat = FlatParameters(strategy.model)
        self.work_queue = WorkQueue(workers, own)
        self.changed = threading.Condition()
        self.first = self.step = self.epoch = self.batch = 0
        self.late: Counter[int] = Counter()
        self.about: dict[int, Head] = {}  # who they are, and at the end what they took
        self.here: dict[int, int] = {}  # workers that take part, and the port at which others find them
        self.serving: dict[int, Connection] = {}
        self.wanted: set[int] = set()  # workers that are asked for their weights
        self.given: dict[int, tuple[Head, list[Tensor]]] = {}
        self.begun = self.ended = False
        self.failure: str | None = None
        self.closed = threading.Event()
        self.listener = Listener(word, self._serve)

    # The loop's side.

    def begin(self, step: int, epoch: int, batch: int) -> None:
        """Wait for all, and give them the weights with which it begins."""
        self.first, self.step, self.epoch, self.batch = step, step, epoch, batch
        with self.changed:
            self._until(lambda: len(self.serving) == self.servers)
            row, head, rows = self._mine()
            for number, part in enumerate(parts(self.flat.size, max(self.servers, 1))[: self.servers]):
                mine = [each[part].clone() for each in (row, *rows)]
                self._ask(number, {"kind": "begin", "version": step, **head}, mine)
            self.begun = True
            self.changed.notify_all()
            self._until(lambda: len(self.here) == self.workers)

    def __call__(self, batch: Batch, share: Share | None = None) -> Tensor:
        with self.changed:
            if self.work_queue.at_rest and not self.work_queue.complete:
                self._open()
            self._until(lambda: bool(self.work_queue.complete))
            loss = self.work_queue.complete.popleft()
            if self.work_queue.at_rest and not self.work_queue.complete:
                self._gather()
        return torch.tensor(loss)

    def _open(self) -> None:
        """Hand out work up to the next rest."""
        batches = self.count(self.epoch)
        count = horizon(self.step, self.batch, batches, self.total, self.every)
        self.work_queue.plan(self.epoch, self.batch, self.batch + count, self.step)
        self.step, self.batch = self.step + count, self.batch + count
        if self.batch == batches:
            self.epoch, self.batch = self.epoch + 1, 0
        self.changed.notify_all()

    def end(self) -> list[Head]:
        """Let all go; what each tells of itself, in order."""
        with self.changed:
            self.ended = True
            self.changed.notify_all()
            self.changed.wait_for(lambda: not self.here, timeout=self.timeout)
        for rank, connection in self.serving.items():
            with contextlib.suppress(Gone):  # it has nothing more to give
                self.about[rank] |= connection.ask({"kind": "end"})[0]
        return [self.about[rank] for rank in sorted(self.about)]

    def _until(self, holds: Callable[[], bool]) -> None:
        """Wait; raises where somebody without whom it cannot go on has failed, or nothing happens for too long."""
        if not self.changed.wait_for(lambda: holds() or self.failure is not None, timeout=self.timeout):
            names = ", ".join(self._name(rank) for rank in self._late())
            raise RankError(f"{names} did not come within {self.timeout:g} s: see train.timeout")
        if self.failure is not None:
            raise RankError(self.failure)

    def _late(self) -> list[int]:
        """For whom all wait; a worker may be at work because a server is not."""
        stopped = [rank for rank, about in self.about.items() if is_stopped(about["pid"])]
        servers = [rank for rank in range(self.workers, self.workers + self.servers) if rank not in self.serving]
        absent = [rank for rank in range(self.workers) if rank not in self.here]
        return sorted(stopped) or servers or sorted(self.work_queue.doing) or absent

    def _name(self, rank: int) -> str:
        return f"worker {rank}" if rank < self.workers else f"server {rank - self.workers}"

    def _ask(self, server: int, order: Head, rows: Sequence[Tensor] = ()) -> tuple[Head, list[Tensor]]:
        try:
            return self.serving[self.workers + server].ask(order, rows)
        except Gone as gone:
            if isinstance(gone.__context__, TimeoutError):
                waited = f"server {server} did not answer within {self.timeout:g} s: see train.timeout"
                raise RankError(waited) from gone
            self._until(lambda: False)  # raises when it is known why
            raise

    # Who has ended.

    def lost(self, rank: int, why: str, again: bool) -> bool:
        """A process has failed; whether the others go on without it, until it starts `again` where it does."""
        with self.changed:
            if rank >= self.workers:
                self.failure = f"server {rank - self.workers} has ended ({why}): the last checkpoint was kept"
            elif self.own:
                self.failure = why
            elif not again and not self.here.keys() - {rank}:
                self.failure = f"no worker is left ({why})"
            self.changed.notify_all()
            return self.failure is None

    # The side of workers and servers: a thread for each.

    def _serve(self, connection: Connection, hello: Head) -> None:
        rank = int(hello["rank"])
        with self.changed:
            self.about[rank] = {key: hello[key] for key in ("rank", "pid", "host", "cores")}
            if rank >= self.workers:
                connection.link.settimeout(self.timeout)
                self.serving[rank] = connection
                self.about[rank]["port"] = hello["port"]
                self.changed.notify_all()
        if rank >= self.workers:
            self.closed.wait()  # whoever asks it something reads its answers
            return
        self._conduct(connection, rank, hello["port"])

    def _conduct(self, connection: Connection, rank: int, port: int) -> None:
        with self.changed:
            self.changed.wait_for(lambda: self.begun or self.ended)
            ports = [self.about[self.workers + number]["port"] for number in range(self.servers)]
            row, head, rows = self._mine()
            late = bool(self.step or self.work_queue.open)
            welcome = {"servers": ports, "peers": dict(self.here), "late": late, **head}
        buffers = [each.clone() for each in buffers_of(self.strategy.model)]
        connection.send(welcome, buffers if self.servers else [row, *buffers, *rows])
        try:
            self._talk(connection, rank, port)
        finally:
            with self.changed:
                self.here.pop(rank, None)
                self.wanted.discard(rank)
                self.work_queue.lost(rank)
                self.changed.notify_all()

    def _talk(self, connection: Connection, rank: int, port: int) -> None:
        while True:
            head, rows = connection.receive()
            with self.changed:
                self.here[rank] = port
                if "loss" in head:
                    self.work_queue.done(rank, head["loss"])
                if head["kind"] == "given":
                    self.given[rank] = head, rows
                    self.wanted.discard(rank)
                self.changed.notify_all()
                if head["kind"] == "given":
                    continue
                order = self._next(rank)
            connection.send(order)
            if order["kind"] == "end":
                self.about[rank] |= connection.receive()[0]
                return

    def _next(self, rank: int) -> Head:
        """What a worker shall do; waits until there is something."""
        while True:
            if self.ended:
                return {"kind": "end"}
            if rank in self.wanted:
                return {"kind": "give"}
            if (item := self.work_queue.take(rank)) is not None:
                return {"kind": "item", "rate": self.rate(item.step), "peers": dict(self.here), **asdict(item)}
            self.changed.wait()

    # Weights and the optimizer's state.

    def _mine(self) -> tuple[Tensor, Head, list[Tensor]]:
        """The coordinator's own, as rows."""
        row, state = self.flat.row(), self.strategy.state()
        self.flat.read(row)
        head, rows = told_state(self.flat.cut(state), state["param_groups"])
        return row, head, rows

    def _gather(self) -> None:
        """Make the training's weights, buffers and optimizer state the coordinator's own, while all rest."""
        buffers = buffers_of(self.strategy.model)
        if buffers or not self.servers:
            self.given.clear()
            while not self.given:  # one that is asked may die, and another come
                self.wanted = set(self.here)
                self.changed.notify_all()
                self._until(lambda: not self.wanted and bool(self.given or self.here))
            own = [rows[: len(buffers)] for _, rows in self.given.values()]
            set_buffers(self.strategy.model, mean_of(own))
        if self.servers:
            version = self.step if self.own else self.first + self.work_queue.finished  # updates
            told = [self._ask(number, {"kind": "give", "version": version}) for number in range(self.servers)]
            self.late.update({int(key): count for head, _ in told[:1] for key, count in head["late"].items()})
            rows = [torch.cat(each) for each in zip(*(rows for _, rows in told), strict=True)]
            head: dict[str, Any] = told[0][0]
        else:
            rows = mean_of([rows[len(buffers) :] for _, rows in self.given.values()])
            head = next(iter(self.given.values()))[0]
        self.flat.write(rows[0])
        state, groups = state_of(head, rows[1:])
        if state:
            self.strategy.load_state(self.flat.joined(state, groups))

    def close(self) -> None:
        with self.changed:
            self.ended = True
            self.changed.notify_all()
        self.closed.set()
        self.listener.close()
