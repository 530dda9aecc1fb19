"""Parameter server: keeps a part of all parameters and the optimizer's state for it, and lets workers pull and push.

    sync, stale   the gradients of a step wait until all workers have pushed theirs; then one update, in their order.
                  A pull for step c waits until the updates of all steps before c - s are there (s = 0: sync)
    async         a push is an update, a pull is answered at once

A pull is answered from a copy that is made once for each version: no worker sees half an update, and one that is slow
to read keeps nobody waiting.
"""

import threading
from collections import Counter
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from manyhands.comm.backends.reduction import reduce_rows
from manyhands.comm.connection import Connection, Head
from manyhands.engine.parameters.state_messages import one_state, state_of, told_state
from manyhands.errors import RankError
from manyhands.optim.factory import load_state, set_lr
from manyhands.plan.consistency import late_factor, ready

PATIENCE = 10.0  # seconds for what is on its way; of a worker that was killed some may never come

Make = Callable[[list[nn.Parameter]], torch.optim.Optimizer]


class Server:
    """The part, and what has been pushed for it."""

    def __init__(self, make: Make, workers: int, staleness: int | None, *, adapt: bool = False) -> None:
        """`staleness`: how many steps a worker may be ahead; None: as many as it likes, a push is an update."""
        self.make, self.workers, self.staleness, self.adapt = make, workers, staleness, adapt
        self.changed = threading.Condition()
        self.part: nn.Parameter | None = None
        self.version = 0  # updates so far
        self.pushed: dict[int, dict[int, Tensor]] = {}  # gradients of steps that are not complete, by worker
        self.unused: dict[int, list[Sequence[Sequence[int]]]] = {}  # of the same steps, by each worker that has pushed
        self.late: Counter[int] = Counter()  # how many updates had overtaken a gradient, how often
        self.copy: tuple[int, Tensor] | None = None
        self.ended = False

    def serve(self, connection: Connection, hello: Head) -> None:
        """One worker, until it ends."""
        while True:
            head, rows = connection.receive()
            if head["kind"] == "push":
                self.push(hello["rank"], head["step"], head["version"], rows[0], head["rate"], head["unused"])
            else:
                version, copy = self.pull(head["step"])
                connection.send({"version": version}, [copy])

    def pull(self, step: int) -> tuple[int, Tensor]:
        """The newest version that a worker may, and can, begin a step with."""
        with self.changed:
            self.changed.wait_for(lambda: self.ended or self._ready(step))
            if self.part is None or self.ended:
                raise RankError("the server has ended")
            if self.copy is None or self.copy[0] != self.version:
                self.copy = self.version, self.part.detach().clone()
            if self.staleness is not None:
                self.late[step - self.version] += 1
            return self.copy

    def _ready(self, step: int) -> bool:
        return self.part is not None and (self.staleness is None or ready(step, self.version, self.staleness))

    def push(
        self, worker: int, step: int, version: int, gradient: Tensor, rate: float, unused: Sequence[Sequence[int]] = ()
    ) -> None:
        """A worker's gradients; `unused`: from where to where it has none, for the loss did not depend on them."""
        with self.changed:
            if self.staleness is None:
                late = self.version - version
                self.late[late] += 1
                if self.adapt:
                    gradient *= late_factor(late)
                self._update(gradient, rate, _common([unused]))
                return
            self.unused.setdefault(step, []).append(unused)
            waiting = self.pushed.setdefault(step, {})
            waiting[worker] = gradient
            # Steps become complete in order, for each worker pushes its own in order.
            if len(waiting) == self.workers:
                rows = [waiting[each] for each in sorted(self.pushed.pop(step))]
                reduce_rows(rows, [rows[0]])
                self._update(rows[0], rate, _common(self.unused.pop(step)))

    def _update(self, gradient: Tensor, rate: float, unused: Sequence[slice]) -> None:
        """`unused`: of what no gradient has come, which neither weight decay nor momentum may move."""
        assert self.part is not None
        self.part.grad = gradient
        set_lr(self.optimizer, rate)
        before = [self._like_the_part(span) for span in unused]
        self.optimizer.step()
        for span, kept in zip(unused, before, strict=True):
            for key, each in self._rows().items():
                each[span] = kept.get(key, 0)
        self.version += 1
        self.changed.notify_all()

    def _rows(self) -> dict[str, Tensor]:
        """The part, and what the optimizer keeps of each of its numbers."""
        assert self.part is not None
        state = {key: each for key, each in self.optimizer.state[self.part].items() if isinstance(each, Tensor)}
        return {"": self.part.detach(), **{key: each for key, each in state.items() if each.shape == self.part.shape}}

    def _like_the_part(self, span: slice) -> dict[str, Tensor]:
        return {key: each[span].clone() for key, each in self._rows().items()}

    # As the coordinator asks, while all workers rest.

    def begin(self, head: Head, rows: list[Tensor]) -> None:
        """Take the part, the optimizer's state and how many updates there have been."""
        with self.changed:
            self.part = nn.Parameter(rows[0])
            self.optimizer = self.make([self.part])
            state, groups = state_of(head, rows[1:])
            if state:
                load_state(self.optimizer, one_state(state, groups))
            self.version = head["version"]
            self.changed.notify_all()

    def give(self, version: int) -> tuple[Head, list[Tensor]]:
        """The part, its optimizer's state, and how late gradients were since the last time.

        After so many updates: what workers have sent before they said so may still be on its way.
        """
        with self.changed:
            self.changed.wait_for(lambda: self.version >= version, timeout=PATIENCE)
            assert self.part is not None
            state = self.optimizer.state_dict()
            head, rows = told_state(state["state"].get(0, {}), state["param_groups"])
            head["late"] = dict(self.late)
            self.late.clear()
            return head, [self.part.detach().clone(), *rows]

    def end(self) -> None:
        """Let nobody wait any more."""
        with self.changed:
            self.ended = True
            self.changed.notify_all()


def _common(unused: Sequence[Sequence[Sequence[int]]]) -> list[slice]:
    """What all workers have no gradient of: whole parameters, so the same places."""
    first, *others = ({(begin, end) for begin, end in each} for each in unused)
    return [slice(*each) for each in sorted(first.intersection(*others))]
