"""Tensor layout: which rows and columns of a tensor each device holds, and which devices hold the same."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate
from math import isqrt
from typing import NamedTuple

from manyhands.errors import PlanError
from manyhands.plan.sharding import Split

LINE = 64  # elements; at least one cache line of any dtype


@lru_cache(maxsize=1024)
def parts(count: int, world: int) -> tuple[slice, ...]:
    """Which elements each rank reduces: even shares, on borders that no two cores' caches fight over."""
    share = -(-count // world)
    share = -(-share // LINE) * LINE
    return tuple(slice(min(rank * share, count), min((rank + 1) * share, count)) for rank in range(world))


class Moved(NamedTuple):
    """Numbers that all ranks together send in a step, forward and backward, where X and Y lie in q x q blocks.

    meshed: by sample=q, parameter=q, which gathers X, adds dX up and all-reduces dW; a rank has 1/q of the weight.
    spread: by parameter=q², which gathers X to all, and adds dX up; a rank has 1/q² of it, as by Cannon.
    """

    cannon: int
    meshed: int
    spread: int


def moved(rows: int, inputs: int, outputs: int, side: int) -> Moved:
    """For a batch of so many rows.

    Cannon sends X, W twice and dX on q − 1 times, dW q times; skewed, and brought home, are all rows of the grid but
    one.
    """
    batch, weight = rows * inputs, outputs * inputs
    if side == 1:
        return Moved(0, 0, 0)
    bounds = edges(rows, side)
    skewed, home = rows - bounds[1], rows - (bounds[2] - bounds[1])
    cannon = (side - 1) * (3 * batch + 3 * weight) + weight + (skewed + home) * inputs
    return Moved(cannon, 2 * (side - 1) * (batch + weight), 2 * (side * side - 1) * batch)


def side_of(devices: Sequence[int]) -> int:
    """Of the grid that these devices make, row by row."""
    side = isqrt(len(devices))
    if side * side != len(devices):
        raise PlanError(f"Cannon's algorithm needs a square number of devices, not {len(devices)}: use 1, 4, 9, 16 …")
    return side


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


def placed_parts(split: Split) -> Iterator[tuple[int, int, int, int]]:
    """Device, and its part by sample, parameter and reduction."""
    devices = iter(split.devices)
    for sample in range(split.sample):
        for parameter in range(split.parameter):
            for reduction in range(split.reduction):
                for _ in range(split.copies):
                    yield next(devices), sample, parameter, reduction


def made(split: Split, features: int, unit: int = 1) -> Layout:
    """What the parts of a layer have made: parts by reduction have added up, and have the same."""
    places = {device: Place(sample, parameter) for device, sample, parameter, _ in placed_parts(split)}
    return Layout(split.sample, edges(features, split.parameter, unit), places)


def taken(split: Split, features: int, same: bool, unit: int = 1) -> Layout:
    """What the parts of a layer take: the features of which they make theirs (same), or those that they reduce.

    The gradient of what is taken has a summand for each part by parameter.
    """
    if same:
        return made(split, features, unit)
    places = {device: Place(sample, part, summand) for device, sample, summand, part in placed_parts(split)}
    return Layout(split.sample, edges(features, split.reduction), places)
