"""Who has which rows and columns, and what must move: every number exactly once, and as few as can be."""

import random
from itertools import product

import numpy as np
import pytest

from manyhands.plan.resharding import Move, moves, part_of, reduction_groups, sample_groups
from manyhands.plan.sharding import Split, on
from manyhands.plan.tensor_layout import Block, Layout, Span, edges, made, taken

DEVICES = 8
FEATURES = 11  # that no degree divides


def drawn(rng: random.Random) -> Split:
    while True:
        sample, parameter, reduction, copies = (rng.choice((1, 1, 2, 3, 4)) for _ in range(4))
        parts = sample * parameter * reduction * copies
        if parts <= DEVICES:
            return Split(sample, parameter, reduction, copies, tuple(rng.sample(range(DEVICES), parts)))


def count(listed: list[Move], target: int, rows: int) -> np.ndarray:
    """How often each number comes to a device."""
    found = np.zeros((rows, FEATURES), dtype=int)
    for each in listed:
        if each.target == target:
            found[slice(*each.block.rows), slice(*each.block.columns)] += 1
    return found


def area(block: Block, rows: int) -> np.ndarray:
    found = np.zeros((rows, FEATURES), dtype=int)
    found[slice(*block.rows), slice(*block.columns)] = 1
    return found


def inside(block: Block, whole: Block) -> bool:
    return block.common(whole) == block


CASES = [(seed, rows) for seed, rows in product(range(40), (1, 3, 16))]


@pytest.mark.parametrize(("seed", "rows"), CASES)
def test_every_device_gets_all_that_it_takes_once(seed: int, rows: int) -> None:
    rng = random.Random(seed)
    have, want = made(drawn(rng), FEATURES), taken(drawn(rng), FEATURES, same=False)
    listed = moves(have, want, rows)
    for device in range(DEVICES):
        assert (count(listed, device, rows) == area(want.block(device, rows), rows)).all()
    for each in listed:
        assert inside(each.block, have.block(each.source, rows))
        if inside(each.block, have.block(each.target, rows)):
            assert each.source == each.target, "what a device has does not come from another"


@pytest.mark.parametrize(("seed", "rows"), CASES)
def test_every_summand_of_a_gradient_comes_back_once(seed: int, rows: int) -> None:
    rng = random.Random(seed)
    split = drawn(rng)
    have, want = made(drawn(rng), FEATURES), taken(split, FEATURES, same=False)
    listed = moves(want, have, rows)
    for device in range(DEVICES):
        assert (count(listed, device, rows) == split.parameter * area(have.block(device, rows), rows)).all()
    for each in listed:
        assert inside(each.block, want.block(each.source, rows))


@pytest.mark.parametrize("seed", range(40))
def test_groups_differ_in_one_thing_alone(seed: int) -> None:
    split = drawn(random.Random(seed))
    for groups, number in ((sample_groups(split), 0), (reduction_groups(split), 2)):
        assert sorted(device for group in groups for device in group) == sorted(split.devices)
        for group in groups:
            parts = [part_of(split, device) for device in group]
            assert [part[number] for part in parts if part] == list(range(len(group)))
            assert len({tuple(value for at, value in enumerate(part) if at != number) for part in parts if part}) == 1


def test_uneven_parts() -> None:
    assert edges(10, 4) == (0, 3, 6, 8, 10)
    assert edges(2, 3) == (0, 1, 2, 2)
    assert edges(12, 2, unit=4) == (0, 8, 12)


def test_column_then_row_moves_nothing() -> None:
    """A layer by parameter and then one by reduction: each has what it takes, and only the sum is exchanged."""
    column, row = on(0, parameter=4), on(0, reduction=4)
    listed = moves(made(column, 8), taken(row, 8, same=False), 16)
    assert all(each.source == each.target for each in listed)


def test_a_device_without_a_part_has_nothing() -> None:
    layout = made(on(2, sample=2), 5)
    assert layout.block(0, 9) == Block(Span(0, 0), Span(0, 0))
    assert layout.span(3, 9) == Span(5, 9)
    assert part_of(on(2), 0) is None


def test_layouts_are_compared_by_what_they_say() -> None:
    one, other = made(on(0, sample=2), 5), made(on(0, sample=2), 5)
    assert one == other
    assert hash(one) == hash(other)
    assert isinstance(one, Layout)
    assert one != made(on(0, parameter=2), 5)
