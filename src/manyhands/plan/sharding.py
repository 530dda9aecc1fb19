"""Sharding: how one layer's work is cut, and which devices have the parts."""

from dataclasses import dataclass
from math import prod

from manyhands.errors import PlanError


@dataclass(frozen=True)
class Split:
    """Degrees, and the devices of the parts: samples counted slowest, then parameters, reductions, copies.

    sample      each part takes some samples (data parallelism)
    parameter   each part makes some output features or channels, from all inputs
    reduction   each part takes some input features, and the parts' results are added up
    copies      several devices do the same work, where that spares a transfer
    """

    sample: int = 1
    parameter: int = 1
    reduction: int = 1
    copies: int = 1
    devices: tuple[int, ...] = (0,)
    cannon: bool = False  # a dense layer by sample=q, parameter=q whose weight lies in q x q blocks (Cannon's)

    def __post_init__(self) -> None:
        for name, degree in self.degrees.items():
            if type(degree) is not int or degree < 1:
                raise PlanError(f"split {name}={degree!r}: a whole number, at least 1, is allowed")
        for device in self.devices:
            if type(device) is not int or device < 0:
                raise PlanError(f"split {self}: device {device!r} is none, they count from 0")
        if self.cannon and (self.sample != self.parameter or self.reduction * self.copies > 1):
            raise PlanError(
                f"split {self}: cannon needs sample = parameter, as sample=2, parameter=2, and nothing else"
            )
        if len(self.devices) != self.parts or len(set(self.devices)) != self.parts:
            raise PlanError(
                f"split {self}: {self.parts} parts need {self.parts} different devices, {list(self.devices)} are named"
            )

    @property
    def degrees(self) -> dict[str, int]:
        names = ("sample", "parameter", "reduction", "copies")
        return {name: getattr(self, name) for name in names}

    @property
    def parts(self) -> int:
        return prod(self.degrees.values())

    def __str__(self) -> str:
        """`sample 4, parameter 2`; `whole` for a layer that one device has."""
        return ", ".join(f"{name} {degree}" for name, degree in self.degrees.items() if degree > 1) or "whole"


def on(first: int, **degrees: int) -> Split:
    """A split over neighbouring devices, from `first` on."""
    return Split(**degrees, devices=tuple(range(first, first + prod(degrees.values()))), cannon=False)
