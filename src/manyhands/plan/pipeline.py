"""Pipeline: which stage each layer of a plan is in, which devices have it, and in which order they work on it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from manyhands.errors import PlanError
from manyhands.plan.plan import Plan
from manyhands.plan.schedule import Action, kept, orders, stages_per_device
from manyhands.plan.split import Split

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
        found = kept(self.schedule, self.positions, microbatches)
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
