"""Layout: which rows and columns of a layer's results each device has, and what must move from one layout to another.

Rows are samples, columns features. The engine moves what `moves` says, and nothing else.

          columns 0..3   4..7                  rows 0..1 of samples, all columns
    rows  ┌────────────┬────────────┐          ┌─────────────────────────┐
    0..3  │ device 0   │ device 1   │   ──→    │ device 0                │
          └────────────┴────────────┘          ├─────────────────────────┤
                                               │ device 1  (rows 2..3)   │
                                               └─────────────────────────┘
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

from manyhands.plan.split import Split


class Span(NamedTuple):
    """From `begin` to before `end`."""

    begin: int
    end: int

    @property
    def size(self) -> int:
        return max(self.end - self.begin, 0)

    def common(self, other: "Span") -> "Span":
        begin = max(self.begin, other.begin)
        return Span(begin, max(min(self.end, other.end), begin))

    def within(self, whole: "Span") -> "Span":
        """The same, counted from the beginning of a larger one."""
        return Span(self.begin - whole.begin, self.end - whole.begin)


class Block(NamedTuple):
    """Some rows of some columns."""

    rows: Span
    columns: Span

    @property
    def size(self) -> int:
        return self.rows.size * self.columns.size

    def common(self, other: "Block") -> "Block":
        return Block(self.rows.common(other.rows), self.columns.common(other.columns))


def edges(size: int, parts: int, unit: int = 1) -> tuple[int, ...]:
    """Where nearly equal parts begin and end, the first ones larger by one; each a whole number of units.

    >>> edges(10, 4)
    (0, 3, 6, 8, 10)
    """
    each, left = divmod(size // unit, parts)
    return tuple(accumulate((unit * (each + (number < left)) for number in range(parts)), initial=0))


class Place(NamedTuple):
    """What a device has of a layout: which of the rows' parts, which of the columns', and which summand of it."""

    row: int
    column: int
    summand: int = 0


@dataclass(frozen=True)
class Layout:
    """How results lie on devices; several devices may have the same place."""

    rows: int  # parts by sample
    columns: tuple[int, ...]  # where parts of the features begin and end
    places: dict[int, Place]  # by device

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.rows, self.columns, tuple(self.places.items())))

    @property
    def whole(self) -> bool:
        """Whether every device has all features of its samples."""
        return len(self.columns) == 2

    def span(self, device: int, rows: int) -> Span:
        """The rows that a device has, of so many; none where it has no place."""
        place = self.places.get(device)
        if place is None:
            return Span(0, 0)
        bounds = edges(rows, self.rows)
        return Span(bounds[place.row], bounds[place.row + 1])

    def block(self, device: int, rows: int) -> Block:
        place = self.places.get(device)
        if place is None:
            return Block(Span(0, 0), Span(0, 0))
        return Block(self.span(device, rows), Span(self.columns[place.column], self.columns[place.column + 1]))

    def of(self, features: int) -> "Layout":
        """The same samples, of so many features, all of them with each device."""
        return Layout(self.rows, (0, features), self.together().places)

    def together(self) -> "Layout":
        """The same samples, each device with all features of its own."""
        places = {device: Place(place.row, 0, place.summand) for device, place in self.places.items()}
        return Layout(self.rows, (0, self.columns[-1]), places)


def _parts(split: Split) -> Iterator[tuple[int, int, int, int]]:
    """Device, and its part by sample, parameter and reduction."""
    devices = iter(split.devices)
    for sample in range(split.sample):
        for parameter in range(split.parameter):
            for reduction in range(split.reduction):
                for _ in range(split.copies):
                    yield next(devices), sample, parameter, reduction


def made(split: Split, features: int, unit: int = 1) -> Layout:
    """What the parts of a layer have made: parts by reduction have added up, and have the same."""
    places = {device: Place(sample, parameter) for device, sample, parameter, _ in _parts(split)}
    return Layout(split.sample, edges(features, split.parameter, unit), places)


def taken(split: Split, features: int, same: bool, unit: int = 1) -> Layout:
    """What the parts of a layer take: the features of which they make theirs (same), or those that they reduce.

    The gradient of what is taken has a summand for each part by parameter.
    """
    if same:
        return made(split, features, unit)
    places = {device: Place(sample, part, summand) for device, sample, summand, part in _parts(split)}
    return Layout(split.sample, edges(features, split.reduction), places)


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
    return next((tuple(part) for own, *part in _parts(split) if own == device), None)  # type: ignore[return-value]
