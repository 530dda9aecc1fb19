"""What a range test suggests from its losses."""

import math
from itertools import pairwise

import pytest

from manyhands.tune.lr_range_test import HIGH, LOW, STEPS, is_blown, ladder, smoothed, suggest


def losses(rates: list[float]) -> list[float]:
    """Flat, falling from 1e-4 on, steepest at 1e-2, blowing up above 0.3."""
    return [2.3 - 2 / (1 + (0.01 / rate) ** 2) + max(rate - 0.3, 0) * 100 for rate in rates]


def test_ladder() -> None:
    rates = ladder()
    assert (rates[0], rates[-1], len(rates)) == (pytest.approx(LOW), pytest.approx(HIGH), STEPS)
    factors = [later / earlier for earlier, later in pairwise(rates)]
    assert max(factors) == pytest.approx(min(factors))


def test_steepest_and_blown() -> None:
    rates = ladder()
    told = suggest(rates, losses(rates))
    assert told.steepest is not None
    assert told.blows_up is not None
    assert 0.005 < told.steepest < 0.05  # smoothing is late
    assert 0.3 < told.blows_up < 1.0
    assert told.best == min(told.steepest, told.blows_up / 10)


def test_a_tenth_of_what_blows_up() -> None:
    rates = ladder()
    told = suggest(rates, [2.3 - math.log1p(1000 * min(rate, 0.02)) / 2 + (rate > 0.02) * 50 for rate in rates])
    assert told.blows_up is not None
    assert told.best == pytest.approx(told.blows_up / 10)


def test_a_loss_that_is_no_number_is_where_it_blows_up() -> None:
    rates = ladder()[:61]
    told = suggest(rates, losses(rates[:60]), diverged=True)
    assert told.blows_up == rates[60]


def test_nothing_learned() -> None:
    rates = ladder()
    assert suggest(rates, [2.3] * STEPS).best is None
    assert suggest(rates[:1], [], diverged=True).best == pytest.approx(rates[0] / 10)


def test_smoothing_has_no_pull_to_zero() -> None:
    assert smoothed([2.0] * 5) == pytest.approx([2.0] * 5)
    assert not is_blown(smoothed([2.0, 1.9]))
    assert is_blown(smoothed([2.0, *[50.0] * 3]))
