"""Worker processes: what the workers of an epoch do when, for each kind of consistency, as a stream of acts.

Times do not depend on what is learned, so that the stream is known without a model; a training obeys it with real
weights (simulate.cluster). The rules of who waits for whom are plan.consistency's, as in the engine.

    together  ─┬ pull ─ compute ─ push ─┬─ update ─        all parts of a batch, one update; `staleness` steps ahead
               └ pull ─ compute ─ push ─┘                  at most; without servers: a sum over all, which each applies
    free       ─ pull ─ compute ─ push ─ update ─ pull ─   every part an update of its own
    local      ─ compute and update ─ … ─ average ─        weights of one's own
    gossip     ─ compute and update ─ meet ─               the same, and another partner after each step
"""

from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import NamedTuple

from manyhands.plan.consistency import averages, partners, ready
from manyhands.simulate.worker_events import Condition, Cores, Events, Resource, Wait
from manyhands.simulate.worker_timing import WorkerTiming


class Gradient(NamedTuple):
    """A worker takes the gradient of a part with the newest weights of this moment."""

    time: int
    worker: int
    batch: int
    part: int
    version: int  # updates of this epoch that are in those weights


class Update(NamedTuple):
    """All parts of a batch have come: one step of the optimizer with their sum."""

    time: int
    batch: int


class Push(NamedTuple):
    """A step of the optimizer with the gradient that a worker has brought."""

    time: int
    worker: int
    late: int  # updates since it took its weights


class Step(NamedTuple):
    """A worker learns from a part, with weights of its own."""

    time: int
    worker: int
    batch: int
    part: int


class Average(NamedTuple):
    """The weights of all workers are averaged."""

    time: int


class Meet(NamedTuple):
    """A worker meets another: both go halfway, the other one at its next step."""

    time: int
    worker: int
    other: int


Act = Gradient | Update | Push | Step | Average | Meet


class Workers:
    """The workers of one epoch."""

    def __init__(self, pace: WorkerTiming, parts: Sequence[Sequence[int]], steps: list[int], now: int = 0) -> None:
        """`parts`: samples of every part of every batch; `steps`: those that each worker has done, which go on."""
        self.pace, self.parts, self.steps = pace, parts, steps
        self.events = Events(now)
        self.cores, self.gate = Cores(self.events, pace.cores), Condition(self.events)
        self.server = Resource(self.events)
        # A server of a CPU does one thing at a time; others have ports of their own, one for each direction.
        self.inward = Resource(self.events) if pace.overlap else self.server
        self.outward = Resource(self.events) if pace.overlap and pace.duplex else self.inward
        self.come = [0] * len(parts)
        self.version = self.averaged = 0  # updates so far, and averagings
        self.busy = 0  # nanoseconds that all workers have computed
        self.items = deque((batch, part) for batch, each in enumerate(parts) for part in range(len(each)))
        self.acts: list[Act] = []

    @property
    def now(self) -> int:
        return self.events.now

    def play(self, processes: Iterable[Iterator[Wait]]) -> Iterator[Act]:
        """All acts, in their order; `now` is afterwards when the last process has ended."""
        for process in processes:
            self.events.start(process)
        while self.events.running:
            self.events.step()
            yield from self.acts
            self.acts.clear()

    def together(self, staleness: int) -> Iterator[Act]:
        work = self._served if self.pace.servers else self._replica
        return self.play(work(worker, staleness) for worker in range(self.pace.workers))

    def free(self) -> Iterator[Act]:
        return self.play(self._free(worker) for worker in range(self.pace.workers))

    def local(self, every: int, after: int, first: int) -> Iterator[Act]:
        """`first`: the number of the first batch, counted over all epochs."""
        return self.play(self._local(worker, every, after, first) for worker in range(self.pace.workers))

    def gossip(self, topology: str, seed: int) -> Iterator[Act]:
        return self.play(self._gossip(worker, topology, seed) for worker in range(self.pace.workers))

    # What they do.

    def _served(self, worker: int, staleness: int) -> Iterator[Wait]:
        for batch, sizes in enumerate(self.parts):
            yield self._until_ready(batch, staleness)
            yield from self._pull(worker, batch, worker)
            yield from self._compute(worker, sizes[worker])
            yield from self._send()
            yield from self._serve(self.pace.add)
            if self._is_last(batch):
                self.events.start(self._update(batch))

    def _replica(self, worker: int, staleness: int) -> Iterator[Wait]:
        applied = 0
        for batch, sizes in enumerate(self.parts):
            yield self._until_ready(batch, staleness)
            known = self._take(worker, batch, worker)
            yield self.cores.work((known - applied) * self.pace.apply)
            applied = known
            yield from self._compute(worker, sizes[worker])
            yield self.cores.work(self.pace.publish)
            if self._is_last(batch):
                if self.pace.reduce:
                    self.events.start(self._sum(batch))
                else:  # each adds up what others have published: the last one finds all of it
                    self._completed(batch)
        yield self._until_ready(len(self.parts), 0)
        yield self.cores.work((self.version - applied) * self.pace.apply)

    def _free(self, worker: int) -> Iterator[Wait]:
        while self.items:
            batch, part = self.items.popleft()
            version = yield from self._pull(worker, batch, part)
            yield from self._compute(worker, self.parts[batch][part])
            yield from self._send()
            yield from self._serve(self.pace.update)
            self.acts.append(Push(self.now, worker, self.version - version))
            self.version += 1

    def _local(self, worker: int, every: int, after: int, first: int) -> Iterator[Wait]:
        rounds = 0
        for batch in range(len(self.parts)):
            yield from self._step(worker, batch, worker)
            if averages(first + batch, every, after):
                if self._is_last(batch):
                    self.events.start(self._average())
                rounds += 1
                yield self._until_averaged(rounds)

    def _gossip(self, worker: int, topology: str, seed: int) -> Iterator[Wait]:
        while self.items:
            batch, part = self.items.popleft()
            if not self.parts[batch][part]:
                continue  # nothing to learn by itself
            yield from self._step(worker, batch, part)
            for other in partners(topology, worker, self.steps[worker] - 1, self.pace.workers, seed)[:1]:
                yield self._sent(self.pace.message)
                self.acts.append(Meet(self.now, worker, other))

    # Of which that consists.

    def _until_ready(self, batch: int, staleness: int) -> Wait:
        return self.gate.until(lambda: ready(batch, self.version, staleness))

    def _until_averaged(self, rounds: int) -> Wait:
        return self.gate.until(lambda: self.averaged >= rounds)

    def _is_last(self, batch: int) -> bool:
        """Whether this worker is the last with its part of a batch."""
        self.come[batch] += 1
        return self.come[batch] == self.pace.workers

    def _compute(self, worker: int, samples: int) -> Iterator[Wait]:
        step, begun = self.steps[worker], self.now
        self.steps[worker] += 1
        yield self.cores.work(self.pace.work(worker, step, samples))
        self.busy += self.now - begun
        # Who is slowed on purpose sleeps, in proportion to what it has just seen, and leaves its core to others.
        if (factor := self.pace.slower(worker, step)) > 1:
            yield self.events.after(round((factor - 1) * (self.now - begun)))

    def _step(self, worker: int, batch: int, part: int) -> Iterator[Wait]:
        yield from self._compute(worker, self.parts[batch][part])
        yield self.cores.work(self.pace.update)
        self.acts.append(Step(self.now, worker, batch, part))

    def _moved(self, nanoseconds: int, by: int = 1) -> Wait:
        return self.events.after(nanoseconds) if self.pace.overlap else self.cores.work(nanoseconds, by)

    def _sent(self, nanoseconds: int) -> Wait:
        """Both ends of a message are busy with it."""
        return self._moved(nanoseconds, 2)

    def _take(self, worker: int, batch: int, part: int) -> int:
        """The gradient is that of the weights of this moment, though the worker will have computed it later."""
        self.acts.append(Gradient(self.now, worker, batch, part, self.version))
        return self.version

    def _pull(self, worker: int, batch: int, part: int) -> Generator[Wait, None, int]:
        """The weights are those of the moment in which the server begins to send."""
        yield self.outward.enter
        version = self._take(worker, batch, part)
        yield self._sent(self.pace.held)
        self.outward.leave()
        yield self._sent(self.pace.message - self.pace.held)
        return version

    def _send(self) -> Iterator[Wait]:
        yield self.inward.enter
        yield self._sent(self.pace.held)
        self.inward.leave()
        yield self._sent(self.pace.message - self.pace.held)

    def _serve(self, nanoseconds: int) -> Iterator[Wait]:
        """All servers do their share of some work."""
        yield self.server.enter
        yield self.cores.work(nanoseconds // self.pace.servers, self.pace.servers)
        self.server.leave()

    def _update(self, batch: int) -> Iterator[Wait]:
        yield from self._serve(self.pace.update)
        self._completed(batch)

    def _sum(self, batch: int) -> Iterator[Wait]:
        yield self.inward.enter
        yield self._moved(self.pace.reduce)
        self.inward.leave()
        self._completed(batch)

    def _completed(self, batch: int) -> None:
        self.version += 1
        self.acts.append(Update(self.now, batch))
        self.gate.open()

    def _average(self) -> Iterator[Wait]:
        yield self._moved(self.pace.reduce)
        self.averaged += 1
        self.acts.append(Average(self.now))
        self.gate.open()
