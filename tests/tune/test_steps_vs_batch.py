"""The law of steps and batch size, and the knee of throughput."""

import pytest

from manyhands.optim.lr_scaling import scaled
from manyhands.optim.options import OptimOptions
from manyhands.tune.steps_vs_batch import Law, fit, regime
from manyhands.tune.throughput_knee import knee

SIZES = (16, 32, 64, 128, 256, 512, 1024)


def test_exact_steps_give_the_law_again() -> None:
    law = Law(least_steps=50, least_samples=12_800)
    found = fit({size: law.steps(size) for size in SIZES})
    assert found is not None
    assert (found.least_steps, found.least_samples) == pytest.approx((50, 12_800))
    assert found.critical_batch == pytest.approx(256)
    assert found.steps(256) == pytest.approx(100)


def test_steps_that_are_off_by_a_tenth() -> None:
    law = Law(50, 12_800)
    noisy = {size: law.steps(size) * (1.1 if number % 2 else 0.9) for number, size in enumerate(SIZES)}
    found = fit(noisy)
    assert found is not None
    assert found.critical_batch == pytest.approx(256, rel=0.35)


def test_falling_in_proportion_has_no_critical_batch() -> None:
    found = fit({size: 1000 / size * (1 - 0.0001 * size) for size in (8, 16, 32)})
    assert found is not None
    assert found.least_steps == 0
    assert found.critical_batch is None
    assert found.to_json()["perfect_until"] is None


def test_steps_that_do_not_fall_stagnate() -> None:
    found = fit({64: 100, 128: 110, 256: 120})
    assert found is not None
    assert (found.least_samples, found.critical_batch) == (0, 0)
    assert regime(64, found.critical_batch) == "stagnation"


def test_two_sizes_are_no_law() -> None:
    assert fit({64: 100, 128: 60}) is None
    assert fit({}) is None


@pytest.mark.parametrize(
    ("size", "critical", "told"),
    [
        (99, 300, "perfect scaling"),
        (100, 300, "diminishing returns"),
        (899, 300, "diminishing returns"),
        (900, 300, "stagnation"),
        (10**6, None, "perfect scaling"),
    ],
)
def test_regimes(size: int, critical: float | None, told: str) -> None:
    assert regime(size, critical) == told


@pytest.mark.parametrize(
    ("speeds", "found"),
    [
        ({32: 100, 64: 180, 128: 290, 256: 300, 512: 301}, 128),
        ({32: 100, 64: 200, 128: 400}, 128),
        ({32: 300, 64: 200, 128: 290}, 32),
        ({64: 7}, 64),
    ],
)
def test_knee(speeds: dict[int, float], found: int) -> None:
    assert knee(speeds) == found


def test_the_rate_grows_with_the_batch() -> None:
    assert scaled(0.1, OptimOptions("momentum"), 1024) == pytest.approx(0.4)
    assert scaled(0.001, OptimOptions("adam"), 1024) == pytest.approx(0.002)
    assert scaled(0.001, OptimOptions("lamb", base_batch=128), 32) == pytest.approx(0.0005)
    assert scaled(0.001, OptimOptions("adam", scaling="linear"), 1024) == pytest.approx(0.004)
