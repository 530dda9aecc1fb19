"""Weight grad store: weight gradients that are computed while the backward pass goes on.

input gradients      | 3 | 2 |             half of a CPU's threads, or the GPU's first stream
weight gradients         | 3 | 2 | 1 |     the other half, or a second stream
"""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial

import torch
from torch import Tensor

Made = list[tuple[Tensor, Tensor]]  # weights, and what is to be added to their gradients
Work = Callable[[], Made]


class WeightGradStore:
    """Weight gradients that are still to be computed, the oldest first; a backward pass inside `with` leaves none."""

    def __init__(self) -> None:
        self.pending: deque[Work] = deque()

    def __len__(self) -> int:
        return len(self.pending)

    def add(self, work: Work) -> None:
        self.pending.append(work)

    def run(self, count: int | None = None) -> None:
        """Do the oldest ones, as many as told, or all."""
        for _ in range(len(self) if count is None else count):
            accumulate(self._next())

    def _next(self) -> Made:
        try:
            work = self.pending.popleft()
        except IndexError:  # another thread has taken the last one
            return []
        return work()

    def __enter__(self) -> "WeightGradStore":
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is None:
            self.run()
        self.pending.clear()


def accumulate(made: Made) -> None:
    """As autograd does: the first gradient is kept, laid out as its weight, later ones are added to it."""
    with torch.no_grad():
        for weight, gradient in made:
            if weight.grad is not None:
                weight.grad.add_(gradient)
            elif gradient.dtype == weight.dtype and gradient.stride() == weight.stride():
                weight.grad = gradient
            else:
                weight.grad = torch.empty_like(weight).copy_(gradient)


class Threaded(WeightGradStore):
    """A second thread computes them; both have half of the threads inside one operation."""

    def __init__(self, threads: int) -> None:
        super().__init__()
        # Equal halves: of torch's libraries one has a single number for all threads of the process.
        self.threads, self.half = threads, max(threads // 2, 1)
        self.worker = ThreadPoolExecutor(1, "weights", torch.set_num_threads, (self.half,))
        self.taken: list[Future[Made]] = []

    def add(self, work: Work) -> None:
        super().add(work)
        self.taken.append(self.worker.submit(self._next))

    def run(self, count: int | None = None) -> None:
        """Do what the other thread has not begun, then wait for it."""
        super().run(count)
        while self.taken:
            accumulate(self.taken.pop(0).result())

    def __enter__(self) -> WeightGradStore:
        torch.set_num_threads(self.half)
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        try:
            super().__exit__(kind, *error)
        finally:
            self._forget()
            torch.set_num_threads(self.threads)

    def _forget(self) -> None:
        """After a step that failed: what was not begun would take the next step's work."""
        begun = [each for each in self.taken if not each.cancel()]
        self.taken.clear()
        wait(begun)


class Streamed(WeightGradStore):
    """A second stream of the GPU computes them."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.device = device
        self.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def add(self, work: Work) -> None:
        self.stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self.stream):
            made = work()
        super().add(partial(self._joined, work, made))

    def _joined(self, work: Work, made: Made) -> Made:
        """`work` is held until here, so that the first stream does not use again what the second still reads."""
        torch.cuda.current_stream(self.device).wait_stream(self.stream)
        return made


def overlapped_wgrad(device: torch.device) -> WeightGradStore:
    return Streamed(device) if device.type == "cuda" else Threaded(torch.get_num_threads())
