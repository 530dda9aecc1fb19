"""Simulation: a plan's timeline, played in full or repaired after a change."""

from collections.abc import Mapping, Sequence

import numpy as np

from manyhands.errors import PlanError
from manyhands.plan.split import Split
from manyhands.simulate import change as repair
from manyhands.simulate import play
from manyhands.simulate.board import Board, Problem, place
from manyhands.simulate.problem import board as empty_board

Times = tuple[int, ...]


class Simulation:
    """The layers' splits, and when everything happens under them. Times are integer nanoseconds."""

    def __init__(self, problem: Problem, splits: Sequence[Split]) -> None:
        self.problem, self.board = problem, empty_board(problem)
        self._scratch = np.zeros((2, problem.devices), dtype=np.int64)
        if len(splits) != len(problem.weights):
            raise PlanError(f"{len(splits)} splits for {len(problem.weights)} layers: give one for each")
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
        place(self.board, layer, (split.sample, split.parameter, split.reduction, split.copies), devices)

    def full(self) -> int:
        """Build and play everything."""
        self.step_ns = int(play.full(self.problem, self.board, self._scratch))
        return self.step_ns

    def change(self, splits: Mapping[int, Split]) -> int:
        """Give some layers another split, and repair what that touches."""
        changed = np.zeros(len(self.board.parts), dtype=np.bool_)
        for layer, split in splits.items():
            self._place(layer, split)
            changed[layer] = True
        self.step_ns = int(repair.change(self.problem, self.board, changed, self._scratch))
        return self.step_ns

    def times(self) -> dict[str, list[Times]]:
        """Every start and end, in one order: what two simulations of one plan must agree in."""
        return times(self.problem, self.board)


def times(problem: Problem, board: Board) -> dict[str, list[Times]]:
    """Computation: beat, device, end. Transfers: beat, edge, component, end. Updates: device, begin, end."""
    computed: list[Times] = []
    moved: list[Times] = []
    reduced: list[Times] = []
    for beat, (direction, micro, layer) in enumerate(zip(problem.direction, problem.micro, problem.layer, strict=True)):
        which, later = board.which[beat], board.later[beat]
        for device in board.device[layer][: board.parts[layer]]:
            ends = (board.computed[which, beat, device] + later, board.ends[which, beat, device] + later)
            computed.append((beat, int(device), *map(int, ends)))
        for edge in (problem.into if direction == 0 else problem.out)[layer]:
            if edge < 0:
                break
            if direction == 0 or problem.back[edge]:
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
