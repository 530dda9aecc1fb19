"""Faults: read from two keys, refused in one line, drawn by seed, rank and step."""

import numpy as np
import pytest

from manyhands.config import Config, with_settings
from manyhands.errors import ConfigError
from manyhands.plan.stragglers import Fault, read


def test_nothing_said_slows_nobody() -> None:
    fault = read(None, None)
    assert fault == Fault()
    assert {fault.factor(rank, step, seed) for rank in range(3) for step in range(9) for seed in range(3)} == {1.0}


def test_a_slow_rank_is_slow_for_good() -> None:
    fault = read("1:3x", None)
    assert [fault.factor(rank, 7, 0) for rank in range(3)] == [1.0, 3.0, 1.0]


def test_slow_steps_are_as_many_as_said_and_the_same_again() -> None:
    fault = read(None, "0.1:10x")
    drawn = np.array([[fault.factor(rank, step, 5) for step in range(1000)] for rank in range(4)])
    assert set(drawn.ravel()) == {1.0, 10.0}
    slow = (drawn == 10).mean()
    assert abs(slow - 0.1) < 4 * (0.1 * 0.9 / drawn.size) ** 0.5
    assert [fault.factor(2, step, 5) for step in range(1000)] == list(drawn[2])
    assert [fault.factor(2, step, 6) for step in range(1000)] != list(drawn[2])
    assert len({tuple(row) for row in drawn}) == 4


def test_both_multiply() -> None:
    assert read("0:2x", "1:10x").factor(0, 3, 0) == 20.0


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("slow_rank=1", "write RANK:FACTORx such as 1:3x"),
        ("slow_rank=1:3", "write RANK:FACTORx such as 1:3x"),
        ("slow_rank=one:3x", "write RANK:FACTORx such as 1:3x"),
        ("slow_rank=1.5:3x", "the rank is 1.5, a whole number is needed"),
        ("slow_rank=-1:3x", "-1 must be at least 0"),
        ("slow_rank=1:0.5x", "the factor at least 1"),
        ("slow_steps=0.1:nanx", "write SHARE:FACTORx such as 0.1:10x"),
        ("slow_steps=2:10x", "the share is 2.0, it must be from 0 to 1"),
    ],
)
def test_what_is_wrong_is_told(word: str, told: str) -> None:
    with pytest.raises(ConfigError) as raised:
        with_settings(Config(), [f"fault.{word}"])
    assert told in str(raised.value)
    assert f"fault.{word}" in str(raised.value)


def test_a_rank_that_the_plan_lacks_is_refused() -> None:
    read("3:2x", None).check(4)
    with pytest.raises(ConfigError, match="the plan has workers 0 to 3"):
        read("4:2x", None).check(4)
