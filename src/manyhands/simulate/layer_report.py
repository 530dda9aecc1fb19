"""Layer report: why a plan takes as long as it is predicted to, layer by layer and in words."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from manyhands.graph.graph import Layer
from manyhands.plan.sharding import Split
from manyhands.simulate.simulator import MB, Prediction
from manyhands.simulate.step import result as reductions
from manyhands.simulate.step.arrays import BACKWARD, FORWARD
from manyhands.simulate.step.result import Result
from manyhands.simulate.step.simulation import Simulation


@dataclass(frozen=True)
class Row:
    """One layer: its passes and transfers in a step, on the device that takes longest."""

    layer: str
    operation: str
    short: str  # the operation for which it is named, and how many go with it
    split: str
    devices: tuple[int, ...]
    forward_ms: float
    backward_ms: float
    transfer_ms: float
    saves_ms: float | None  # against this layer by sample over the same devices; None where it cannot be cut so
    memory_mb: float  # of one part

    @property
    def places(self) -> str:
        return numbers(self.devices)

    def to_json(self) -> dict[str, Any]:
        told = asdict(self)
        del told["short"]
        return {**told, "devices": list(self.devices)}


def rows(prediction: Prediction) -> list[Row]:
    """A row for each layer."""
    result, splits = prediction.result, prediction.splits
    problem, board = result.simulation.problem, result.simulation.board
    micro = problem.beat.shape[1]
    saved = _saved(prediction)
    found = []
    for number, (layer, split) in enumerate(zip(result.graph.layers, splits, strict=True)):
        k, p, r = problem.degree[[board.sample[number], board.parameter[number], board.reduction[number]]]
        backward = int(problem.backward[number, k, p, r]) if result.graph.learns[number] else 0
        found.append(
            Row(
                layer=layer.name,
                operation=layer.operation,
                short=_short(layer),
                split=str(split),
                devices=split.devices,
                forward_ms=micro * int(problem.forward[number, k, p, r]) / 1e6,
                backward_ms=micro * backward / 1e6,
                transfer_ms=transfer_ns(result, number) / 1e6,
                saves_ms=None if (gain := saved[number]) is None else gain / 1e6,
                memory_mb=int(problem.memory[number, k, p, r]) / MB,
            )
        )
    return found


def _short(layer: Layer) -> str:
    chief = next((each.operation for each in layer.members if each.name == layer.name), layer.operation)
    return f"{chief} +{len(layer.members) - 1}" if layer.members else chief


def _saved(prediction: Prediction) -> list[int | None]:
    """What the step would take longer if a layer were split by sample over its devices, in nanoseconds."""
    result, splits = prediction.result, prediction.splits
    problem = result.simulation.problem
    trial = Simulation(problem, splits)  # the result keeps its own
    found: list[int | None] = []
    for number, split in enumerate(splits):
        if split.sample == split.parts:
            found.append(0)
        elif split.parts > result.batch // problem.beat.shape[1] or problem.degree[split.parts] < 0:
            found.append(None)
        else:
            found.append(trial.change({number: Split(sample=split.parts, devices=split.devices)}) - result.step_ns)
            trial.change({number: split})
    return found


def transfer_ns(result: Result, number: int) -> int:
    """How long a layer's transfers take in a step, waiting apart: what it gets in either pass, and what its parts add
    up."""
    problem, board = result.simulation.problem, result.simulation.board
    micro = problem.beat.shape[1]
    whole = 0
    for direction, edges in ((FORWARD, problem.into[number]), (BACKWARD, problem.out[number])):
        for edge in edges:
            if edge >= 0 and (direction == FORWARD or problem.back[edge]):
                buffer = board.edge[edge]
                moves = board.move[buffer, edge, direction, : board.components[buffer, edge]]
                whole += micro * int(moves.max())  # components move at once
    passes = (FORWARD, BACKWARD) if result.graph.learns[number] else (FORWARD,)
    summed = [reductions.within(problem, board, number, direction) for direction in passes]
    summed = [*summed * micro, reductions.gradients(problem, board, number)]
    return whole + sum(max(each.values(), default=0) for each in summed)


def shares(result: Result) -> dict[str, float]:
    """What all devices' time goes to, as fractions that add up to one."""
    total = result.step_ns * len(result.busy_ns)
    spent = {"forward": 0, "backward": 0, "update": 0}
    for event in result.computing:
        spent[event.category] += event.end_ns - event.start_ns
    spent["transfers"] = sum(result.exposed_by_device)
    found = {name: each / total for name, each in spent.items()}
    return {**found, "idle": max(1 - sum(found.values()), 0.0)}


def numbers(devices: Sequence[int]) -> str:
    """`0-3` for neighbours, else each.

    >>> numbers((0, 1, 2, 3)), numbers((2,)), numbers((0, 2))
    ('0-3', '2', '0,2')
    """
    first, last = devices[0], devices[-1]
    if len(devices) > 1 and list(devices) == list(range(first, last + 1)):
        return f"{first}-{last}"
    return ",".join(map(str, devices))
