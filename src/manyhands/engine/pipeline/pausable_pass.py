"""Pausable pass: a pass through a model that stops between the stages of its rank, and goes on when it is its turn.

Where a rank has two stages (schedule=interleaved), other micro-batches pass one of them before this one comes to the
other. The model's own code is in the middle of a forward pass then, or autograd of a backward pass, so each pass is a
thread; never do two run at once.

    the step     go_on ─┐           ┌─ go_on ─┐           ┌─
    the pass            └─ … stop ──┘         └─ … ends ──┘
"""

from collections.abc import Callable
from concurrent.futures import Executor
from threading import Lock


class PausablePass:
    """One pass."""

    def __init__(self, threads: Executor, work: Callable[[], None]) -> None:
        self.goes, self.stops = Lock(), Lock()  # taken until the other side lets go
        self.goes.acquire()
        self.stops.acquire()
        self.ended = False
        self.error: BaseException | None = None
        threads.submit(self._run, work)

    def _run(self, work: Callable[[], None]) -> None:
        self.goes.acquire()
        try:
            work()
        except BaseException as error:
            self.error = error
        self.ended = True
        self.stops.release()

    def suspend(self) -> None:
        """Called in the pass: wait for the next turn."""
        self.stops.release()
        self.goes.acquire()

    def resume(self) -> None:
        """Let it run until it stops or ends; a stage without a layer of its own has nothing left to do."""
        if self.ended:
            return
        self.goes.release()
        self.stops.acquire()
        if self.error is not None:
            raise self.error
