"""Profiled: what layers cost on the machine at hand, as they were timed inside real steps.

A profile has, for some numbers of samples, the time of every layer's passes and of what else a step does, measured in
as many processes at once as a plan has ranks, since ranks share caches and memory. Between two numbers of samples a
time lies on the line from one to the other; outside, on the line through the nearest two.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from manyhands.graph.graph import Layer
from manyhands.machine.link import Link
from manyhands.simulate.cost.layer_profile import STATE, Profile


@dataclass(frozen=True)
class Measured:
    """Costs from a profile, and from the link over which its ranks add up their gradients."""

    profile: Profile
    parameters: int  # of the whole model
    precision: str = "fp32"
    optimizer: str = "adam"
    link: Link | None = None
    shares_update: bool = False  # every rank updates its part alone

    def layer(self, layer: Layer, samples: float, parameter: int, reduction: int) -> tuple[int, int]:
        """Layers that were not seen apart (functions between modules) are in the times of their neighbours."""
        forward = backward = 0.0
        pieces = parameter * reduction
        for each in layer.members or (layer,):
            if pairs := self.profile.layers.get(each.name):
                forward += self._at(samples, [pair[0] for pair in pairs]) / pieces
                backward += self._at(samples, [pair[1] for pair in pairs]) / pieces
            if each.kind == "loss":
                forward += self._at(samples, self.profile.rest) / pieces
            pieces = parameter
        return round(forward), round(backward)

    def _at(self, samples: float, times: Sequence[int]) -> float:
        known = self.profile.samples
        if len(known) == 1:
            return times[0] * samples / known[0]
        above = min(max(bisect_right(known, samples), 1), len(known) - 1)
        low, high = known[above - 1], known[above]
        slope = (times[above] - times[above - 1]) / (high - low)
        return max(times[above - 1] + slope * (samples - low), 0.0)

    def update(self, parameters: float) -> int:
        share = parameters / self.parameters
        return round(self.profile.update * share / (self.profile.ranks if self.shares_update else 1))

    def sync(self, layer: Layer, sample: int, pieces: int) -> int | None:
        """The layer's share of bringing all gradients together and adding them up at once, as the exchange does it."""
        if self.link is None or sample == 1 or not layer.parameters:
            return None
        whole = 1e9 * self.link.seconds(4 * self.parameters // pieces) + self.profile.copy / pieces
        return round(whole * layer.parameters / self.parameters)

    def memory(self, layer: Layer, samples: float, parameter: int, reduction: int, micro: int) -> int:
        item = self.activation_bytes()
        kept = sum(each.results for each in layer.members or (layer,)) / layer.inputs[0][0] * samples * micro * item
        weights = 4 * layer.parameters * (2 + STATE.get(self.optimizer, 2))
        return round(kept / parameter + weights / (parameter * reduction))

    def activation_bytes(self) -> int:
        return 2 if self.precision == "bf16" else 4
