"""Machine: the cores, memory and GPUs that a training may use."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Core:
    """One logical core; logical cores with the same socket and physical number are SMT siblings."""

    id: int
    physical: int
    socket: int
    node: int  # NUMA node


@dataclass(frozen=True)
class Gpu:
    """One GPU as its driver names it."""

    index: int
    name: str
    memory_bytes: int


@dataclass(frozen=True)
class Machine:
    """What this process may use: affinity and container limits are already taken off."""

    host: str
    cpu: str
    cores: tuple[Core, ...]
    memory_bytes: int
    gpus: tuple[Gpu, ...] = ()
    system: str = ""

    @property
    def physical_cores(self) -> int:
        return len({(core.socket, core.physical) for core in self.cores})

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Machine":
        cores = tuple(Core(**core) for core in value["cores"])
        gpus = tuple(Gpu(**gpu) for gpu in value["gpus"])
        return cls(**{**value, "cores": cores, "gpus": gpus})

    def __str__(self) -> str:
        """One line, as the tables under results carry it."""
        gpus = f", {len(self.gpus)} x {self.gpus[0].name}" if self.gpus else ""
        return f"{self.cpu}, {len(self.cores)} cores, {self.memory_bytes / 2**30:.0f} GiB{gpus}"
