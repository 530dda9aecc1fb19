"""Stages: which stage each layer of a plan is in, which devices have it, and in which order they work on it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from manyhands.errors import PlanError
from manyhands.graph.graph import Layer
from manyhands.plan.pipeline_schedule import Action, activations_in_flight, orders, stages_per_device
from manyhands.plan.plan import Plan
from manyhands.plan.sharding import Split

MOST_TOLD = 4  # stages that an error names


@dataclass(frozen=True)
class Pipeline:
    """Devices that share a layer have one position; a stage is a run of neighbouring layers at one position."""

    schedule: str
    stage: tuple[int, ...]  # of each layer
    position: Mapping[int, int]  # of each device that has a layer
    recompute: bool = False  # a stage keeps its inputs alone, and goes forward again before it goes backward

    @property
    def positions(self) -> int:
        return 1 + max(self.position.values())

    def orders(self, microbatches: int) -> tuple[tuple[Action, ...], ...]:
        """What is done at each position, in order."""
        return orders(self.schedule, self.positions, microbatches)

    def kept(self, microbatches: int) -> tuple[int, ...]:
        """Of each layer, how many micro-batches its devices keep at once."""
        if self.schedule == "gpipe":  # whose stages may share devices
            return (microbatches,) * len(self.stage)
        found = activations_in_flight(self.schedule, self.positions, microbatches)
        return tuple(found[stage] for stage in self.stage)


def pipeline_of(plan: Plan, splits: Sequence[Split]) -> Pipeline:
    """The pipeline of a plan whose layers are split so; one whose schedule they do not allow is refused."""
    position = _positions(splits)
    runs = [(at, len(list(run))) for at, run in groupby(position[split.devices[0]] for split in splits)]
    stage = tuple(number for number, (_, count) in enumerate(runs) for _ in range(count))
    schedule = plan.schedule or "gpipe"
    degree = next((axis.degree for axis in plan.axes if axis.name == "pipeline"), 1)
    if degree == 1 and schedule == "interleaved":  # the stages of one device are one
        schedule = "1f1b"
    wanted = list(range(degree)) * stages_per_device(schedule)
    if schedule != "gpipe" and [at for at, _ in runs] != wanted:
        devices = [str(list(devices)) for devices, _ in groupby(split.devices for split in splits)]
        more = ", …" if len(devices) > MOST_TOLD else ""
        raise PlanError(
            f"plan {plan.name}: schedule={schedule} needs {len(wanted)} stages in turn on {degree} sets of ranks of "
            f"their own, layers are on ranks {', '.join(devices[:MOST_TOLD])}{more}: say schedule=gpipe, or name others"
        )
    return Pipeline(schedule, stage, position, plan.recompute == "on")


def _positions(splits: Sequence[Split]) -> dict[int, int]:
    """Of each device the number of its set, in the order of the layers; sets that share a device are one."""
    found: list[set[int]] = []
    for split in splits:
        shared = [each for each in found if each & set(split.devices)]
        joined = set(split.devices).union(*shared)
        where = found.index(shared[0]) if shared else len(found)
        found = [each for each in found if each not in shared]
        found.insert(where, joined)
    return {device: number for number, devices in enumerate(found) for device in devices}


Weigh = Callable[[Layer], float]  # what a layer's work counts when stages are balanced


def balance(weights: Sequence[float], stages: int) -> list[int]:
    """The stage of each layer: neighbours together, none empty, the heaviest stage as light as can be.

    >>> balance([1, 1, 2, 2], 2)
    [0, 0, 0, 1]
    """
    count = len(weights)
    total = [0.0]
    for weight in weights:
        total.append(total[-1] + weight)
    # best[k][n]: the heaviest stage when the first n layers are in k stages; cut[k][n]: where the last begins.
    best = [[total[n] for n in range(count + 1)]]
    cut = [[0] * (count + 1)]
    for k in range(1, stages):
        row, where = [float("inf")] * (count + 1), [0] * (count + 1)
        for n in range(k + 1, count + 1):
            for at in range(k, n):
                heaviest = max(best[k - 1][at], total[n] - total[at])
                if heaviest < row[n]:
                    row[n], where[n] = heaviest, at
        best.append(row)
        cut.append(where)
    numbers, end = [0] * count, count
    for k in range(stages - 1, -1, -1):
        begin = cut[k][end] if k else 0
        for n in range(begin, end):
            numbers[n] = k
        end = begin
    return numbers


@dataclass(frozen=True)
class Stage:
    """Neighbouring layers that one group of devices has."""

    layers: tuple[int, ...]
    devices: tuple[int, ...]


def stages_of(chosen: Sequence[Split]) -> list[Stage]:
    """The stages of a pipeline: runs of layers on the same devices."""
    found: list[Stage] = []
    for number, split in enumerate(chosen):
        if found and found[-1].devices == split.devices:
            found[-1] = Stage((*found[-1].layers, number), split.devices)
        else:
            found.append(Stage((number,), split.devices))
    return found
