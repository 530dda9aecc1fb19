"""Axis: one way of splitting a training over ranks, and its degree."""

from dataclasses import dataclass

from manyhands.errors import PlanError, choices

AXES = ("plain", "ddp", "serial", "data", "tensor", "pipeline", "owt", "server", "local", "gossip", "auto")
ALONE = ("plain", "serial", "auto")  # take no number of ranks
MESH = ("data", "tensor", "pipeline")  # may be combined


@dataclass(frozen=True)
class Axis:
    """One way of splitting and its degree: `data:4`; a server axis also counts its servers: `server:3+1`."""

    name: str
    degree: int = 1
    servers: int = 0

    def __str__(self) -> str:
        if self.name in ALONE:
            return self.name
        return f"{self.name}:{self.degree}" + (f"+{self.servers}" if self.servers else "")


def check_axes(axes: tuple[Axis, ...]) -> None:
    if not axes:
        raise PlanError(f"a plan needs at least one axis. Allowed: {', '.join(AXES)}")
    names = [axis.name for axis in axes]
    for axis in axes:
        if axis.name not in AXES:
            raise PlanError(f"unknown plan '{axis.name}': {choices(axis.name, AXES)}")
        if axis.degree < 1:
            raise PlanError(f"plan '{axis}': the number of ranks is {axis.degree}, it must be at least 1")
        if (axis.servers > 0) != (axis.name == "server"):
            raise PlanError(f"plan '{axis}': servers are counted as in server:3+1 (3 workers, 1 server)")
    if len(axes) > 1 and not set(names) <= set(MESH):
        raise PlanError(f"plan '{','.join(names)}': only {', '.join(MESH)} can be combined")
    if len(set(names)) < len(names):
        raise PlanError(f"plan '{','.join(names)}' names an axis twice: say each once")


def parse_axis(word: str) -> Axis:
    name, colon, number = word.partition(":")
    if name not in AXES:
        raise PlanError(f"unknown plan '{word}': {choices(name, AXES)}; or the path of a plan.toml")
    if name in ALONE:
        if colon:
            raise PlanError(f"plan '{word}': {name} takes no number, write just {name}")
        return Axis(name)
    workers, plus, servers = number.partition("+")
    if not workers.isdecimal() or (plus and not servers.isdecimal()) or bool(plus) != (name == "server"):
        example = "server:3+1" if name == "server" else f"{name}:2"
        raise PlanError(f"plan '{word}': the number of ranks is missing or not a whole number, write {example}")
    return Axis(name, int(workers), int(servers or 0))
