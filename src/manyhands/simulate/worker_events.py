"""Worker events: a virtual clock in whole nanoseconds, and what processes wait for on it.

A process is a generator that yields what it waits for. What happens at the same moment happens in the order in which it
was asked for, so that a simulation is the same each time.
"""

from collections import deque
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from heapq import heappop, heappush
from itertools import count
from math import ceil

Then = Callable[[], None]
Wait = Callable[[Then], None]  # begins what is waited for, and calls back when it is over


class Events:
    """What will happen, the earliest first."""

    def __init__(self, now: int = 0) -> None:
        self.now, self.running = now, 0  # processes that have not ended
        self.heap: list[tuple[int, int, Then]] = []
        self.numbers = count()

    def at(self, time: int, act: Then) -> None:
        heappush(self.heap, (time, next(self.numbers), act))

    def soon(self, act: Then) -> None:
        """Now, after all else that is to happen now."""
        self.at(self.now, act)

    def after(self, nanoseconds: int) -> Wait:
        return lambda then: self.at(self.now + nanoseconds, then)

    def start(self, process: Iterator[Wait]) -> None:
        """Let a process go on whenever what it waits for is over."""

        def go() -> None:
            wait = next(process, None)
            if wait is None:
                self.running -= 1
            else:
                wait(go)

        self.running += 1
        self.soon(go)

    def step(self) -> None:
        """The next thing happens."""
        self.now, _, act = heappop(self.heap)
        act()


class Resource:
    """A place for one at a time, first come first served: `yield line.enter` … `line.leave()`."""

    def __init__(self, events: Events) -> None:
        self.events, self.taken = events, False
        self.waiting: deque[Then] = deque()

    def enter(self, then: Then) -> None:
        if self.taken:
            self.waiting.append(then)
        else:
            self.taken = True
            self.events.soon(then)

    def leave(self) -> None:
        if self.waiting:
            self.events.soon(self.waiting.popleft())
        else:
            self.taken = False


class Condition:
    """Those who wait until something holds; whoever changes what they look at opens it."""

    def __init__(self, events: Events) -> None:
        self.events = events
        self.waiting: list[tuple[Callable[[], bool], Then]] = []

    def until(self, holds: Callable[[], bool]) -> Wait:
        def wait(then: Then) -> None:
            if holds():
                self.events.soon(then)
            else:
                self.waiting.append((holds, then))

        return wait

    def open(self) -> None:
        before, self.waiting = self.waiting, []
        for holds, then in before:
            if holds():
                self.events.soon(then)
            else:
                self.waiting.append((holds, then))


class Cores:
    """Cores that all who compute share fairly: each goes on at the rate min(1, cores / those who compute).

    All go on alike, so one number says how far: `served` nanoseconds of work have been done for each since the cores
    were last idle, and a job ends when as much more has been served as it needs. Fractions, since a third of a
    nanosecond each time would add up.
    """

    def __init__(self, events: Events, number: int | None) -> None:
        self.events, self.number = events, number  # None: a core for everybody
        self.jobs: list[tuple[Fraction, int, int, Then]] = []  # when `served` is so much it ends; by so many at once
        self.served, self.since, self.active = Fraction(0), 0, 0
        self.numbers, self.turn = count(), 0

    def work(self, nanoseconds: int, by: int = 1) -> Wait:
        """So much work of each of `by` processes that begin together."""
        if self.number is None:
            return self.events.after(nanoseconds)

        def wait(then: Then) -> None:
            self._serve()
            heappush(self.jobs, (self.served + nanoseconds, next(self.numbers), by, then))
            self.active += by
            self._expect()

        return wait

    @property
    def rate(self) -> Fraction:
        return Fraction(min(self.number or 1, self.active), self.active)

    def _serve(self) -> None:
        """Count what was done since the last time."""
        self.served = self.served + (self.events.now - self.since) * self.rate if self.active else Fraction(0)
        self.since = self.events.now

    def _expect(self) -> None:
        """Look again when the next job ends, unless somebody comes or goes before."""
        self.turn += 1
        if self.jobs:
            left = max(self.jobs[0][0] - self.served, Fraction(0))
            self.events.at(self.events.now + ceil(left / self.rate), partial(self._look, self.turn))

    def _look(self, turn: int) -> None:
        if turn != self.turn:
            return
        self._serve()
        while self.jobs and self.jobs[0][0] <= self.served:
            _, _, by, then = heappop(self.jobs)
            self.active -= by
            self.events.soon(then)
        self._expect()
