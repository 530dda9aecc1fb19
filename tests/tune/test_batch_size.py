"""What is made of the trainings, and bad wishes."""

from typing import Any

import pytest

from manyhands.config import Config, with_values
from manyhands.errors import ConfigError, InputError, RunError
from manyhands.tune import critical_batch as kept
from manyhands.tune.batch_size import Wish, best_of
from manyhands.tune.child_process import Reply
from manyhands.tune.critical_batch import critical_batch


def trial(lr: float, steps: int, seconds: float, accuracy: float, reached: bool) -> dict[str, Any]:
    return {"lr": lr, "steps": steps, "seconds": seconds, "accuracy": accuracy, "reached": reached, "diverged": False}


def test_the_fewest_steps_to_the_target() -> None:
    best = best_of(64, [trial(0.1, 90, 3, 0.5, False), trial(0.2, 80, 5, 0.9, True), trial(0.3, 80, 4, 0.91, True)])
    assert (best.size, best.lr, best.steps, best.seconds, best.accuracy) == (64, 0.3, 80, 4, 0.91)
    assert len(best.trials) == 3


def test_no_rate_led_there() -> None:
    best = best_of(64, [trial(0.1, 90, 3, 0.5, False), trial(0.2, 90, 3, 0.6, False)])
    assert (best.lr, best.steps, best.seconds, best.accuracy) == (None, None, None, 0.6)


def test_the_noise_scale_up_to_the_target() -> None:
    """A median over steps: the last point before the target stands for 80 of 100."""
    curve = [(1, 0.1, None), (10, 0.5, 20.0), (20, 0.7, 50.0), (100, 0.9, 300.0), (190, 0.95, 9000.0)]
    assert critical_batch(curve, 0.9) == 300.0
    assert critical_batch(curve, 0.6) == 50.0
    assert critical_batch(curve, 0.5) == 20.0
    assert critical_batch(curve, 0.99) == 300.0
    assert critical_batch([(1, 0.1, None)], 0.9) is None


@pytest.mark.parametrize(
    ("wish", "told"),
    [
        ({"target": 0.0}, "--target 0.0"),
        ({"target": 98.0}, "--target 98.0: an accuracy above 0, at most 1"),
        ({"sizes": (64, 0)}, "--sizes 64,0"),
        ({"budget": 0}, "--budget 0"),
    ],
)
def test_bad_wishes(wish: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Wish(**wish)


def test_an_answer_or_its_error() -> None:
    assert Reply({"a": 1}).known() == {"a": 1}
    with pytest.raises(InputError, match="unknown model"):
        Reply(None, "unknown model", 2).known()
    with pytest.raises(RunError, match="killed by signal 9"):
        Reply(None, "it was killed by signal 9", 1).known()


def test_the_critical_batch_is_kept_by_model_and_data() -> None:
    one, other = Config(), with_values(Config(), {"model.width": 0.5})
    assert kept.recall(one) is None
    kept.keep(one, 123.0)
    assert kept.recall(with_values(one, {"train.batch_size": 64, "optim.lr": 1.0})) == 123.0
    assert kept.recall(other) is None
