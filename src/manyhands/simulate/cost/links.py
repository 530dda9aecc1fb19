"""Links: what collectives and messages between ranks of this machine cost, as a record that is measured elsewhere."""

from dataclasses import dataclass
from typing import Any

from manyhands.machine.cluster import Level
from manyhands.machine.link import Link

FEW = 1024  # bytes, about what a batch norm tells: two numbers for each of a hundred channels


@dataclass(frozen=True)
class Links:
    """How long ranks take to add up their gradients, and what they tell each other in between, as batch norms do."""

    gradients: Link
    small: Link

    def to_json(self) -> dict[str, Any]:
        return {
            name: {**vars(each), "points": [list(point) for point in each.points]} for name, each in vars(self).items()
        }

    @classmethod
    def from_json(cls, told: dict[str, Any]) -> "Links":
        return cls(Link.from_json(told["gradients"]), Link.from_json(told["small"]))

    def level(self) -> Level:
        """Such that the simulator's all-reduce of a few bytes takes what was measured.

        Not what the fitted line says: over gloo 16 ranks add up 4 bytes in 2 ms, and 64 or 16,384 in 10 to 17.
        """
        relays = 2 * max((self.small.ranks - 1).bit_length(), 1)
        return Level(1, self.small.gb_per_s, 1e6 * self.small.seconds(FEW) / relays)
