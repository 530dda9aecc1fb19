"""Machine: the cores, memory and GPUs that a training may use, and what they were measured to do."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from manyhands.machine.link import Link
from manyhands.machine.throughput import Rate


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
    """What this process may use: affinity and container limits are already taken off.

    Only a probe or a description gives rates and links; what is detected has none, and is the same every time.
    """

    host: str
    cpu: str
    cores: tuple[Core, ...]
    memory_bytes: int
    gpus: tuple[Gpu, ...] = ()
    system: str = ""
    rates: tuple[Rate, ...] = ()
    links: tuple[Link, ...] = ()

    @property
    def physical_cores(self) -> int:
        return len(self.separate_cores)

    @property
    def separate_cores(self) -> tuple[int, ...]:
        """One logical core of each physical one, neighbours together."""
        ordered = sorted(self.cores, key=lambda core: (core.node, core.socket, core.physical, core.id))
        first: dict[tuple[int, int], int] = {}
        for core in ordered:
            first.setdefault((core.socket, core.physical), core.id)
        return tuple(first.values())

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Machine":
        cores = tuple(Core(**core) for core in value["cores"])
        gpus = tuple(Gpu(**gpu) for gpu in value["gpus"])
        rates = tuple(Rate(**rate) for rate in value.get("rates", ()))
        links = tuple(Link.from_json(link) for link in value.get("links", ()))
        return cls(**{**value, "cores": cores, "gpus": gpus, "rates": rates, "links": links})

    def __str__(self) -> str:
        """One line, as the tables under results carry it."""
        gpus = f", {len(self.gpus)} x {self.gpus[0].name}" if self.gpus else ""
        return f"{self.cpu}, {len(self.cores)} cores, {self.memory_bytes / 2**30:.0f} GiB{gpus}"
