"""Layer profile: measured forward and backward times of each layer, by samples per device."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

Pair = tuple[int, int]  # forward and backward, in nanoseconds
STATE = {"sgd": 0}  # numbers that an optimizer keeps for each parameter; two where it is not said


@dataclass(frozen=True)
class Profile:
    """Times in nanoseconds, by the number of samples of a process's batch."""

    ranks: int  # processes that ran at once
    samples: tuple[int, ...]  # ascending
    layers: Mapping[str, tuple[Pair, ...]]
    rest: tuple[int, ...]  # feed, prepare, loss and all else but the update
    update: int  # of all parameters
    copy: int = 0  # of all gradients to where they are added up
    waiting: float = 1.0  # how much longer all this is, since ranks wait in each step for the slowest of them
    jitter: float = 0.0  # standard deviation of a step's time over its mean

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> "Profile":
        layers = {name: tuple((one, two) for one, two in pairs) for name, pairs in told["layers"].items()}
        samples, rest = tuple(told["samples"]), tuple(told["rest"])
        names = ("update", "copy", "waiting", "jitter")
        return cls(told["ranks"], samples, layers, rest, *(told[name] for name in names))
