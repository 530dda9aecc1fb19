"""The largest that fits, found from below."""

import pytest

from manyhands.tune.throughput_knee import NEAR, Limit, find_limit


def tried(largest: int, first: int, most: int) -> tuple[Limit, list[int]]:
    asked: list[int] = []

    def fits(size: int) -> bool:
        asked.append(size)
        return size <= largest

    return find_limit(fits, first, most), asked


def test_doubles_then_halves() -> None:
    limit, asked = tried(100, 8, 10_000)
    assert asked == [16, 32, 64, 128, 96, 112, 104]
    assert limit == Limit(96, 104)


def test_everything_fits() -> None:
    assert tried(10**9, 64, 1000) == (Limit(1000, None), [128, 256, 512, 1000])
    assert tried(10**9, 64, 64) == (Limit(64, None), [])


@pytest.mark.parametrize("first", [1, 3, 64])
@pytest.mark.parametrize("largest", [64, 65, 100, 127, 128, 1000, 4095])
def test_within_an_eighth_and_never_far_above(first: int, largest: int) -> None:
    limit, asked = tried(largest, first, 100_000)
    assert limit.fails is not None
    assert limit.fits <= largest < limit.fails
    assert limit.fails - limit.fits <= max(limit.fits // NEAR, 1)
    assert max(asked) <= 2 * largest
