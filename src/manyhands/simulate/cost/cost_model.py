"""Cost model: what a simulation needs to know of layers, in integer nanoseconds."""

from typing import Protocol

from manyhands.graph.graph import Layer


class Costs(Protocol):
    """Measured on a machine at hand, or worked out for one that is described."""

    def layer(self, layer: Layer, samples: float, parameter: int, reduction: int) -> tuple[int, int]:
        """Forward and backward pass of one part: so many samples, of a layer cut so by features. Of several as one,
        parts by reduction share the work of the first alone: what follows takes its sum."""
        ...

    def update(self, parameters: float) -> int:
        """The optimizer's work on so many parameters of one layer."""
        ...

    def sync(self, layer: Layer, sample: int, pieces: int) -> int | None:
        """Adding up a layer's gradients over so many parts by sample, cut into pieces; None: by the links."""
        ...

    def memory(self, layer: Layer, samples: float, parameter: int, reduction: int, micro: int) -> int:
        """Bytes of one part: weights, gradients, optimizer state and what the backward pass needs. Parts by reduction
        have each a part of the weights, and all of the sum."""
        ...

    def activation_bytes(self) -> int:
        """Of one number that goes from layer to layer."""
        ...
