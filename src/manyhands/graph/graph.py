"""Graph: the layers of a model, with shapes, work and what follows what."""

from dataclasses import asdict, dataclass
from functools import cached_property
from math import prod
from typing import Any

KINDS = ("conv", "dense", "embedding", "recurrent", "attention", "norm", "pool", "pointwise", "loss", "other")

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Layer:
    """One step of the forward pass: a module that holds no others, a function between modules, or several as one."""

    name: str  # as in model.named_modules(); a second call of the same module ends in @2
    kind: str  # decides which splits it supports
    operation: str  # the module's class or the function, for people
    inputs: tuple[Shape, ...]  # of what it takes from `after`, in that order; of the model's input where that is empty
    output: Shape  # samples first
    weights: tuple[Shape, ...]  # of its parameters that learn; those that it shares are the first one's
    flops: int  # of the forward pass
    after: tuple[int, ...]  # the layers whose outputs it takes; none: the model's own input
    frozen: int = 0  # parameters that do not learn
    groups: int = 1  # of a convolution; of an attention its heads
    members: tuple["Layer", ...] = ()  # of several as one, in the order in which they run

    @cached_property
    def parameters(self) -> int:
        return sum(map(prod, self.weights))

    @property
    def results(self) -> int:
        """Numbers that it gives for the whole batch."""
        return prod(self.output)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(member.name for member in self.members) or (self.name,)


@dataclass(frozen=True)
class Graph:
    """Layers in the order in which they run, for one batch; all but the weights grows with the batch."""

    batch: int  # samples for which shapes and flops hold
    layers: tuple[Layer, ...]
    traced: str  # export: by torch.export; modules: by watching the modules, as a chain

    @cached_property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """Pairs of layers of which the second takes the first's output."""
        return tuple((source, number) for number, layer in enumerate(self.layers) for source in layer.after)

    @cached_property
    def before(self) -> tuple[tuple[int, ...], ...]:
        """Of each layer, those that take its output."""
        following: list[list[int]] = [[] for _ in self.layers]
        for source, target in self.edges:
            following[source].append(target)
        return tuple(map(tuple, following))

    @cached_property
    def learns(self) -> tuple[bool, ...]:
        """Of each layer, whether it or any before it has parameters that learn: only then has it a backward pass."""
        found: list[bool] = []
        for layer in self.layers:
            found.append(layer.parameters > 0 or any(found[source] for source in layer.after))
        return tuple(found)

    @property
    def is_chain(self) -> bool:
        """Whether each layer takes the output of the one before it, and of no other."""
        return all(layer.after == ((number - 1,) if number else ()) for number, layer in enumerate(self.layers))

    @property
    def parameters(self) -> int:
        return sum(layer.parameters for layer in self.layers)

    @property
    def flops(self) -> int:
        return sum(layer.flops for layer in self.layers)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def from_json(table: dict[str, Any]) -> Graph:
    """What `to_json` made."""
    return Graph(table["batch"], tuple(map(_layer, table["layers"])), table["traced"])


def _layer(told: dict[str, Any]) -> Layer:
    return Layer(
        told["name"],
        told["kind"],
        told["operation"],
        tuple(map(tuple, told["inputs"])),
        tuple(told["output"]),
        tuple(map(tuple, told["weights"])),
        told["flops"],
        tuple(told["after"]),
        told["frozen"],
        told["groups"],
        tuple(map(_layer, told["members"])),
    )
