"""Simulation: a plan's timeline, played in full or repaired after a change."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from manyhands.errors import PlanError
from manyhands.plan.sharding import Split
from manyhands.progress import say
from manyhands.simulate.step.arrays import FORWARD, WEIGHTS, Bools, Ints, Problem, SimulationState, Tries
from manyhands.simulate.step.build import board as empty_board
from manyhands.simulate.step.jit import interpreted, is_compiled
from manyhands.simulate.step.metropolis import metropolis

Times = tuple[int, ...]

# Work, in devices x beats of a simulation, that Python does in about three seconds; compiling takes twenty.
WORK = 200_000


def _rows(*shape: int) -> Ints:
    return np.zeros(shape, dtype=np.int64)


NO_TRIES = Tries(_rows(0, 5), np.zeros(0), _rows(0, 4), _rows(0, 3), _rows(0, 5), _rows(0, 0, 5), 0, 0, False, False)


class Executor:
    """Plays simulations: by Python as long as they are few and nothing was compiled before."""

    def __init__(self) -> None:
        self.work = 0
        self.compiles = False
        self.slowly = interpreted(metropolis)

    def __call__(
        self, problem: Problem, board: SimulationState, *arguments: Any, many: bool = False
    ) -> tuple[int, int, int]:
        """The end of the step, that of the best that was tried, and the bytes that it lacks."""
        self.work += problem.devices * len(problem.layer)
        if not self.compiles and (many or self.work > WORK or is_compiled(metropolis)):
            self.compiles = True
            if not is_compiled(metropolis):
                say("compiling the simulator, once: this takes up to a minute")
        step_ns, best_ns, lacks = (metropolis if self.compiles else self.slowly)(problem, board, *arguments)
        return int(step_ns), int(best_ns), int(lacks)


execute = Executor()


class Simulation:
    """The layers' splits, and when everything happens under them. Times are integer nanoseconds."""

    def __init__(self, problem: Problem, splits: Sequence[Split]) -> None:
        self.problem, self.board = problem, empty_board(problem)
        if len(splits) != len(problem.weights):
            raise PlanError(f"{len(splits)} splits for {len(problem.weights)} layers: give one for each")
        self._degrees = _rows(len(splits), 4)
        self._devices = _rows(len(splits), problem.devices)
        for layer, split in enumerate(splits):
            self._place(layer, split)
        self.step_ns = self.full()

    def _place(self, layer: int, split: Split) -> None:
        most, devices = self.problem.devices, np.array(split.devices, dtype=np.int64)
        if devices.max() >= most:  # the compiled loops would write beyond their arrays
            raise PlanError(f"split {split}: device {devices.max()} of {most}, which count from 0")
        for name, degree in (("sample", split.sample), ("parameter x reduction", split.parameter * split.reduction)):
            if self.problem.degree[degree] < 0:
                raise PlanError(f"split {name}={degree}: {most} devices cannot be divided so; use a divisor")
        self._degrees[layer] = split.sample, split.parameter, split.reduction, split.copies
        self._devices[layer, : len(devices)] = devices

    def full(self) -> int:
        """Build and play everything."""
        return self._run(np.ones(len(self._degrees), dtype=np.bool_))

    def change(self, splits: Mapping[int, Split]) -> int:
        """Give some layers another split, and repair what that touches."""
        changed = np.zeros(len(self._degrees), dtype=np.bool_)
        for layer, split in splits.items():
            self._place(layer, split)
            changed[layer] = True
        return self._run(changed)

    def _run(self, changed: Bools) -> int:
        self.step_ns, _, _ = execute(self.problem, self.board, changed, self._degrees, self._devices, NO_TRIES)
        return self.step_ns

    def attempt(self, tries: Tries) -> tuple[int, int]:
        """Try changes; the step of the best plan, which is left in tries.plans[0], and the bytes that it lacks."""
        changed = np.zeros(len(self._degrees), dtype=np.bool_)
        arguments = (self.problem, self.board, changed, self._degrees, self._devices, tries)
        self.step_ns, best_ns, lacks = execute(*arguments, many=True)
        return best_ns, lacks

    def times(self) -> dict[str, list[Times]]:
        """Every start and end, in one order: what two simulations of one plan must agree in."""
        return times(self.problem, self.board)


def times(problem: Problem, board: SimulationState) -> dict[str, list[Times]]:
    """Computation: beat, device, end. Transfers: beat, edge, component, end. Updates: device, begin, end."""
    computed: list[Times] = []
    moved: list[Times] = []
    reduced: list[Times] = []
    for beat, (direction, micro, layer) in enumerate(zip(problem.direction, problem.micro, problem.layer, strict=True)):
        which, later = board.which[beat], board.later[beat]
        for device in board.device[layer][: board.parts[layer]]:
            ends = (board.computed[which, beat, device] + later, board.ends[which, beat, device] + later)
            computed.append((beat, int(device), *map(int, ends)))
        for edge in (problem.into if direction == FORWARD else problem.out)[layer]:
            if edge < 0 or direction == WEIGHTS:
                break
            if direction == FORWARD or problem.back[edge]:
                buffer = board.edge[edge]
                for number in np.flatnonzero(board.move[buffer, edge, direction, : board.components[buffer, edge]]):
                    end = board.arrived[which, 2 * micro + direction, edge, number] + later
                    moved.append(
                        (beat, int(edge), int(number), int(end), int(board.move[buffer, edge, direction, number]))
                    )
    for layer, beat in enumerate(problem.synced):
        if beat >= 0:
            which, later = board.which[beat], board.later[beat]
            for device in board.device[layer][: board.parts[layer]]:
                reduced.append((layer, int(device), int(board.synced[which, layer, device] + later)))
    updated: list[Times] = [
        (device, int(board.begun[device]), int(board.done[device])) for device in range(problem.devices)
    ]
    return {"computed": computed, "moved": moved, "reduced": reduced, "updated": updated}
