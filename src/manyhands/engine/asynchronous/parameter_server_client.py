"""Parameter server client: the exchange of a worker whose weights live on servers.

backward   … conv2   conv1                     gradients go out as soon as those of a server's part are all there
servers        part 1 ─→   part 0 ─→           a thread for each
next step                        ─→ pull       weights come back, from all servers at once
"""

import contextlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import torch
from torch import nn

from manyhands.comm.connection import Connection, Head
from manyhands.data.sampler import Share
from manyhands.engine.asynchronous.work_queue import Item
from manyhands.engine.parameters.flat_parameters import FlatParameters
from manyhands.engine.parameters.gradient_buffer import GradientBuffer
from manyhands.engine.strategies.single_process import SingleProcess
from manyhands.plan.tensor_layout import parts


class ParameterServerClient(SingleProcess):
    """One worker's side of it."""

    def __init__(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, clip: float | None, servers: Sequence[Connection]
    ):
        super().__init__(model, optimizer, clip)
        self.flat, self.servers = FlatParameters(model), servers
        self.row = self.flat.row()
        self.flat.move_in(self.row)
        self.parts = parts(self.flat.size, len(servers))
        self.sends = ThreadPoolExecutor(len(servers))
        self.sent: list[Future[None]] = []
        self.versions = [0] * len(servers)
        self.holding = False
        self.step, self.rate = 0, 0.0
        self.unused: set[int] = set()  # parameters without a gradient in this step
        self._reset()
        self.gradients = GradientBuffer(self.flat, self.flat.row(), self._kept)

    def _reset(self) -> None:
        """The parameters that each part still waits for."""
        starts, parameters = self.flat.starts, self.flat.parameters
        self.awaited = [
            {
                number
                for number, at in enumerate(starts)
                if at < part.stop and at + parameters[number].numel() > part.start
            }
            for part in self.parts
        ]

    def _kept(self, number: int) -> None:
        """A gradient is in the row, final or not; of a norm all of them are needed first."""
        if not self.holding and self.clip is None:
            self._come(number)

    def _come(self, number: int) -> None:
        """A gradient is final: send the parts that waited for it alone."""
        for server, awaited in enumerate(self.awaited):
            if number in awaited:
                awaited.remove(number)
                if not awaited:
                    self.sent.append(self.sends.submit(self._push, server))

    def _push(self, server: int) -> None:
        head = {"kind": "push", "step": self.step, "version": self.versions[server], "rate": self.rate}
        head["unused"] = self._unused_of(self.parts[server])
        self.servers[server].send(head, [self.gradients.row[self.parts[server]]])

    def _unused_of(self, part: slice) -> list[list[int]]:
        """Where in a server's part parameters without a gradient lie. A part goes out before backward has ended only
        where each of its parameters has one."""
        found = []
        for number in sorted(self.unused):
            start = self.flat.starts[number]
            begin, end = max(start, part.start), min(start + self.flat.parameters[number].numel(), part.stop)
            if begin < end:
                found.append([begin - part.start, end - part.start])
        return found

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        self.holding = True
        try:
            yield
        finally:
            self.holding = False

    def begin(self, item: Item, order: Head) -> None:
        """Pull the weights for a step."""
        self.step, self.rate = item.step, order["rate"]
        self.versions = list(self.sends.map(self._pull, range(len(self.servers))))

    def _pull(self, server: int) -> int:
        into = [self.row[self.parts[server]]]
        head, _ = self.servers[server].ask({"kind": "pull", "step": self.step}, into=into)
        version: int = head["version"]
        return version

    def update(self) -> None:
        """Send what has not gone out yet, and wait until all has."""
        self.unused = self.gradients.complete()
        if self.clip is not None:
            row = self.gradients.row
            row.mul_(torch.clamp(self.clip / (row.norm() + 1e-6), max=1.0))
        for number in range(len(self.flat.parameters)):
            self._come(number)
        for each in self.sent:
            each.result()
        self.sent.clear()
        self.unused = set()
        self._reset()

    def close(self) -> None:
        self.sends.shutdown()
        for connection in self.servers:
            connection.close()

    def weight(self, share: Share) -> Share:
        """As the whole batch has it: the gradients of all parts add up to those of the batch."""
        return share
