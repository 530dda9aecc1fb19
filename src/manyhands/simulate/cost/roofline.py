"""Roofline: what layers cost on a device that is described but not at hand.

A roofline: a part takes as long as its operations at the rate that its kind of layer reaches, or as its bytes at the
memory's bandwidth, whichever is longer.

    seconds = max(flops / (peak × efficiency × fill), bytes / bandwidth)        fill = n / (n + half_batch)

where n are the part's samples: a few do not fill a large device. The backward pass does twice the operations of a
layer of products (gradients of both factors) unless one factor is frozen, and once those of any other.
"""

from dataclasses import dataclass
from math import prod

from manyhands.graph.graph import Layer
from manyhands.machine.cluster import Accelerator

BYTES = {"fp64": 8, "fp32": 4, "bf16": 2}
PRODUCTS = ("conv", "dense", "recurrent", "attention")
DEFAULT_EFFICIENCY = 0.5
# Numbers that an optimizer keeps for each parameter; others are taken as adam's.
STATE = {"sgd": 0, "momentum": 1, "nesterov": 1, "rmsprop": 1, "adagrad": 1, "adam": 2, "adamw": 2}


@dataclass(frozen=True)
class Analytic:
    """Costs by data sheet."""

    device: Accelerator
    batch: int  # samples for which the graph's numbers hold
    precision: str = "fp32"
    optimizer: str = "adam"
    slowdown: float = 1.0  # all times of layers by this: how a published time of the whole is matched

    def layer(self, layer: Layer, samples: float, parameter: int, reduction: int) -> tuple[int, int]:
        forward = backward = 0.0
        pieces = parameter * reduction
        for each in layer.members or (layer,):
            one, two = self._passes(each, samples, pieces)
            forward, backward, pieces = forward + one, backward + two, parameter
        return round(1e9 * forward * self.slowdown), round(1e9 * backward * self.slowdown)

    def _passes(self, layer: Layer, samples: float, pieces: int) -> tuple[float, float]:
        share = samples / self.batch / pieces
        peak = self.device.tflop_per_s.get(self.precision) or max(self.device.tflop_per_s.values())
        reached = self.device.efficiency.get(layer.kind, DEFAULT_EFFICIENCY)
        fill = samples / (samples + self.device.half_batch)
        compute = layer.flops * share / (peak * 1e12 * reached * fill)
        taken = sum(map(prod, layer.inputs)) * samples / self.batch
        weights = layer.parameters + layer.frozen
        moved = BYTES[self.precision] * (taken + layer.results * share) + 4 * weights / pieces
        memory = moved / (self.device.gb_per_s * 1e9)
        twice = layer.parameters > 0 or (layer.kind in PRODUCTS and not layer.frozen)
        return max(compute, memory), max((2 if twice else 1) * compute, 2 * memory)

    def update(self, parameters: float) -> int:
        """Weights, gradients and state are read, weights and state are written."""
        touched = 4 * parameters * (3 + 2 * STATE.get(self.optimizer, 2))
        return round(touched / self.device.gb_per_s)

    def sync(self, layer: Layer, sample: int, pieces: int) -> int | None:
        return None

    def memory(self, layer: Layer, samples: float, parameter: int, reduction: int, micro: int) -> int:
        kept = sum(each.results for each in layer.members or (layer,)) * samples * micro / self.batch / parameter
        weights = layer.frozen + layer.parameters * (2 + STATE.get(self.optimizer, 2))
        return round(kept * BYTES[self.precision] + 4 * weights / (parameter * reduction))

    def activation_bytes(self) -> int:
        return BYTES[self.precision]
