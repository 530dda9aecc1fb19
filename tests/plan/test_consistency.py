"""Who waits for whom: the rules that engine and virtual cluster share."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manyhands.plan.consistency import averages, elastic_rate, late_factor, partners, ready


@pytest.mark.parametrize(
    ("clock", "complete", "staleness", "may"),
    [(0, 0, 0, True), (1, 0, 0, False), (1, 1, 0, True), (4, 0, 4, True), (5, 0, 4, False), (5, 1, 4, True)],
)
def test_nobody_is_further_ahead(clock: int, complete: int, staleness: int, may: bool) -> None:
    assert ready(clock, complete, staleness) is may


def test_late_gradients_count_less() -> None:
    assert [late_factor(late) for late in (0, 1, 2, 4)] == [1, 1, 0.5, 0.25]


@pytest.mark.parametrize(
    ("every", "after", "at"),
    [(1, 0, [0, 1, 2, 3, 4, 5]), (3, 0, [2, 5]), (2, 3, [0, 1, 2, 4]), (4, 2, [0, 1, 5])],
)
def test_when_weights_are_averaged(every: int, after: int, at: list[int]) -> None:
    assert [step for step in range(6) if averages(step, every, after)] == at


@given(st.sampled_from(["ring", "exponential", "pairs"]), st.integers(1, 9), st.integers(0, 40), st.integers(0, 3))
def test_all_others_come_in_some_order(topology: str, world: int, step: int, seed: int) -> None:
    for rank in range(world):
        order = partners(topology, rank, step, world, seed)
        assert sorted(order) == [other for other in range(world) if other != rank]
        assert order == partners(topology, rank, step, world, seed)


def test_who_meets_whom() -> None:
    assert [partners("ring", 0, step, 5, 0)[0] for step in range(4)] == [1, 4, 1, 4]
    assert [partners("exponential", 2, step, 8, 0)[0] for step in range(4)] == [3, 4, 6, 3]
    drawn = Counter(partners("pairs", 0, step, 5, 7)[0] for step in range(400))
    assert set(drawn) == {1, 2, 3, 4}
    assert min(drawn.values()) > 50


@given(st.integers(1, 64))
def test_the_centre_never_overshoots(world: int) -> None:
    assert 0 < world * elastic_rate(world) < 1
