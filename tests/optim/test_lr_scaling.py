"""The rate of a larger batch, by the rule that is named."""

import pytest

from manyhands.errors import ConfigError
from manyhands.optim.lr_scaling import LARS_LR, base_rate
from manyhands.optim.options import OptimOptions


@pytest.mark.parametrize(
    ("options", "batch", "wanted"),
    [
        ({}, 4096, 0.1),
        ({"scaling": "linear"}, 1024, 0.4),
        ({"scaling": "linear"}, 64, 0.025),
        ({"scaling": "linear", "base_batch": 1024}, 1024, 0.1),
        ({"scaling": "sqrt"}, 1024, 0.2),
        ({"scaling": "sqrt"}, 256, 0.1),
    ],
)
def test_rules(options: dict[str, object], batch: int, wanted: float) -> None:
    assert base_rate(OptimOptions(lr=0.1, **options), 7.0, batch) == pytest.approx(wanted)


def test_a_rate_that_is_not_named() -> None:
    assert base_rate(OptimOptions(), 0.003, 256) == 0.003
    assert base_rate(OptimOptions(name="lamb", scaling="linear"), 0.003, 512) == pytest.approx(0.006)
    assert base_rate(OptimOptions(name="lars"), 0.003, 256) == LARS_LR


@pytest.mark.parametrize(
    ("options", "said"),
    [({"scaling": "square"}, "did you mean 'sqrt'"), ({"base_batch": 0}, "optim.base_batch=0")],
)
def test_bad_options(options: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        OptimOptions(**options)
    assert "\n" not in str(caught.value)
