"""Schedules: marked points, bounds, and the shapes that they promise."""

from itertools import pairwise

import pytest

from manyhands.errors import ConfigError
from manyhands.optim import lr_schedule
from manyhands.optim.lr_schedule import factor
from manyhands.optim.options import OptimOptions


def curve(total: int, **options: object) -> list[float]:
    chosen = OptimOptions(**options)
    return [factor(chosen, step, total) for step in range(total)]


def test_constant() -> None:
    assert curve(5) == [1.0] * 5


def test_step_drops_at_each_third() -> None:
    assert curve(6, schedule="step") == pytest.approx([1, 1, 0.1, 0.1, 0.01, 0.01])


def test_step_takes_its_own_share_and_factor() -> None:
    assert curve(4, schedule="step", step_every=0.5, gamma=0.5) == [1, 1, 0.5, 0.5]


def test_cosine_at_marked_points() -> None:
    values = curve(100, schedule="cosine")
    assert values[0] == 1
    assert values[50] == pytest.approx(0.5)
    assert 0 < values[-1] < 0.001


def test_one_cycle_peaks_after_the_warm_up() -> None:
    values = curve(100, schedule="one-cycle")
    assert values[0] == pytest.approx(1 / 31)
    assert values.index(max(values)) == 30
    assert values[30] == 1
    assert values[65] == pytest.approx(0.5)
    assert 0 < values[-1] < 0.02
    rises = [after - before for before, after in pairwise(values)]
    assert all(rise > 0 for rise in rises[:30])
    assert all(rise < 0 for rise in rises[30:])


@pytest.mark.parametrize("name", lr_schedule.NAMES)
@pytest.mark.parametrize(("warmup", "steps"), [(0.1, 20), (20, 20), (0.5, 100)])
def test_warm_up_rises_from_near_nothing(name: str, warmup: float, steps: int) -> None:
    values = curve(200, schedule=name, warmup=warmup, step_every=1.0)
    assert values[0] == pytest.approx(1 / (steps + 1))
    assert values[steps] == 1
    assert all(before < after for before, after in pairwise(values[: steps + 1]))


@pytest.mark.parametrize("name", lr_schedule.NAMES)
@pytest.mark.parametrize("total", [1, 2, 3, 7, 50])
@pytest.mark.parametrize("warmup", [0.0, 0.3, 0.999, 1.0, 1000.0])
def test_always_a_share_of_the_base_rate(name: str, total: int, warmup: float) -> None:
    assert all(0 < value <= 1 for value in curve(total, schedule=name, warmup=warmup))


@pytest.mark.parametrize("name", lr_schedule.NAMES)
def test_one_step_in_all_is_at_the_full_rate(name: str) -> None:
    assert curve(1, schedule=name) == [1.0]


@pytest.mark.parametrize("name", lr_schedule.NAMES)
def test_a_step_beyond_the_end_keeps_the_last_value(name: str) -> None:
    options = OptimOptions(schedule=name)
    assert factor(options, 12, 10) == factor(options, 9, 10)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"schedule": "cosin"}, "did you mean 'cosine'"),
        ({"name": "adan"}, "did you mean 'adam'"),
        ({"lr": 0.0}, "optim.lr=0.0"),
        ({"lr": float("nan")}, "optim.lr=nan"),
        ({"lr": float("inf")}, "optim.lr=inf"),
        ({"weight_decay": -1.0}, "optim.weight_decay=-1.0"),
        ({"momentum": 1.0}, "optim.momentum=1.0"),
        ({"name": "nesterov", "momentum": 0.0}, "above 0 for nesterov"),
        ({"warmup": -0.1}, "optim.warmup=-0.1"),
        ({"step_every": 0.0}, "optim.step_every=0.0"),
        ({"gamma": 2.0}, "optim.gamma=2.0"),
    ],
)
def test_bad_options_are_refused_in_one_line(options: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        OptimOptions(**options)
    assert "\n" not in str(caught.value)
