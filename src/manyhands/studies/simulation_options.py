"""Simulation options: what a cell of a study says beside its plan and config when nothing is trained."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from manyhands.errors import ConfigError, choices
from manyhands.machine import cluster_toml

SIMULATORS = ("delta", "full")
FEW = 200  # proposals, where it is only to be seen whether a search runs


@dataclass(frozen=True)
class Virtual:
    """The described machine on which plans are played, and how they are searched; None: as many as usual."""

    machine: str = "p100x4-ib"
    devices: int | None = None  # for a search; any other plan takes as many as it needs
    simulator: str = "delta"  # that a search uses: delta repairs what a change touches, full plays all again
    proposals: int | None = None  # of a search

    def __post_init__(self) -> None:
        cluster_toml.find(self.machine)  # an unknown one is refused
        if self.simulator not in SIMULATORS:
            raise ConfigError(f"simulator={self.simulator}: {choices(self.simulator, SIMULATORS)}")
        for key, value in (("devices", self.devices), ("proposals", self.proposals)):
            if value is not None and value < 1:
                raise ConfigError(f"{key}={value}: it must be at least 1")

    def with_values(self, values: Mapping[str, Any]) -> "Virtual":
        """Replace some; texts, as `--set` gives them, are read as the key's type."""
        numbers = {key: _whole(key, values[key]) for key in ("devices", "proposals") if key in values}
        words = {key: str(values[key]) for key in ("machine", "simulator") if key in values}
        return replace(self, **numbers, **words)  # type: ignore[arg-type]


KEYS = tuple(each.name for each in fields(Virtual))


def _whole(key: str, value: Any) -> int:
    if isinstance(value, bool) or not str(value).isdecimal():
        raise ConfigError(f"{key}={value}: a whole number, at least 1, is needed")
    return int(value)
