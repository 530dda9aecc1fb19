"""Resharding: which block goes from which device to which other, and the groups of devices that hold the same."""

from typing import NamedTuple

from manyhands.plan.sharding import Split
from manyhands.plan.tensor_layout import Block, Layout, Place, placed_parts


class Move(NamedTuple):
    """A block that goes from one device to another, or stays."""

    source: int
    target: int
    block: Block


def moves(have: Layout, want: Layout, rows: int) -> list[Move]:
    """What goes where, so that every device gets what it wants: from itself, else from one of those that have it.

    Those that have the same take turns. Each summand of what is had comes: with the layouts exchanged these are the
    ways back of the gradient, whose summands are added up.
    """
    found: list[Move] = []
    for number, target in enumerate(want.places):
        wanted = want.block(target, rows)
        for owners in _owners(have).values():
            block = wanted.common(have.block(owners[0], rows))
            if block.size:
                source = target if target in owners else owners[number % len(owners)]
                found.append(Move(source, target, block))
    return found


def _owners(layout: Layout) -> dict[Place, list[int]]:
    found: dict[Place, list[int]] = {}
    for device, place in layout.places.items():
        found.setdefault(place, []).append(device)
    return found


def sample_groups(split: Split) -> list[tuple[int, ...]]:
    """Devices whose parts differ in their samples alone: they add up the gradients of the same weights."""
    stride = split.parts // split.sample
    return [split.devices[each::stride] for each in range(stride)]


def parameter_groups(split: Split) -> list[tuple[int, ...]]:
    """Devices whose parts differ in their parameters alone, in the order of the parts."""
    stride = split.reduction * split.copies
    size = split.parameter * stride
    starts = [begin + each for begin in range(0, split.parts, size) for each in range(stride)]
    return [split.devices[start : start - start % stride + size : stride] for start in starts]


def reduction_groups(split: Split) -> list[tuple[int, ...]]:
    """Devices whose parts differ in what they reduce alone: they add up their results."""
    outer, stride = split.sample * split.parameter, split.copies
    size = split.reduction * stride
    starts = [each * size + copy for each in range(outer) for copy in range(stride)]
    return [split.devices[start : start - start % stride + size : stride] for start in starts]


def part_of(split: Split, device: int) -> tuple[int, int, int] | None:
    """A device's part by sample, parameter and reduction."""
    return next((tuple(part) for own, *part in placed_parts(split) if own == device), None)  # type: ignore[return-value]
