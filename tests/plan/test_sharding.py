"""A split of one layer: its parts, its words, and what it refuses."""

import pytest

from manyhands.errors import PlanError
from manyhands.plan.sharding import Split, on


def test_parts_lie_on_neighbours() -> None:
    split = on(4, sample=2, parameter=3)
    assert split == Split(sample=2, parameter=3, devices=(4, 5, 6, 7, 8, 9))
    assert split.parts == 6
    assert split.degrees == {"sample": 2, "parameter": 3, "reduction": 1, "copies": 1}
    assert on(3) == Split(devices=(3,))


@pytest.mark.parametrize(
    ("split", "words"),
    [
        (on(0), "whole"),
        (on(7), "whole"),
        (on(0, sample=4), "sample 4"),
        (on(0, sample=2, parameter=2, reduction=3, copies=2), "sample 2, parameter 2, reduction 3, copies 2"),
    ],
)
def test_words(split: Split, words: str) -> None:
    assert str(split) == words


def test_devices_may_come_in_any_order() -> None:
    assert Split(sample=3, devices=(5, 0, 2)).devices == (5, 0, 2)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"sample": 0, "devices": ()}, "split sample=0: a whole number, at least 1, is allowed"),
        ({"parameter": -2, "devices": (0, 1)}, "split parameter=-2: a whole number, at least 1, is allowed"),
        ({"reduction": 1.5}, "split reduction=1.5: a whole number, at least 1, is allowed"),
        ({"copies": True}, "split copies=True: a whole number, at least 1, is allowed"),
        ({"sample": "2", "devices": (0, 1)}, "split sample='2': a whole number, at least 1, is allowed"),
        ({"sample": 2}, "split sample 2: 2 parts need 2 different devices, [0] are named"),
        ({"sample": 2, "devices": (1, 1)}, "split sample 2: 2 parts need 2 different devices, [1, 1] are named"),
        ({"devices": (0, 1)}, "split whole: 1 parts need 1 different devices, [0, 1] are named"),
        ({"sample": 2, "devices": (0, -1)}, "split sample 2: device -1 is none, they count from 0"),
        ({"sample": 2, "devices": (0, 1.0)}, "split sample 2: device 1.0 is none, they count from 0"),
    ],
)
def test_what_is_wrong_is_named(values: dict[str, object], told: str) -> None:
    with pytest.raises(PlanError) as error:
        Split(**values)  # type: ignore[arg-type]
    assert str(error.value) == told
