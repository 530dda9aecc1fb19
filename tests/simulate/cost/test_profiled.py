"""Costs from a profile."""

from dataclasses import replace

import pytest

from manyhands.graph.graph import Layer
from manyhands.machine.link import Link
from manyhands.simulate.cost.layer_profile import Profile
from manyhands.simulate.cost.profiled import Measured

DENSE = Layer("dense", "dense", "Linear", ((2, 10),), (2, 5), ((5, 10), (5,)), 200, ())
LOSS = Layer("loss", "loss", "CrossEntropyLoss", ((2, 5),), (2,), (), 10, (0,))
PROFILE = Profile(2, (10, 30), {"dense": ((100, 200), (300, 900))}, (7, 17), 1000)


@pytest.mark.parametrize(
    ("samples", "passes"), [(10, (100, 200)), (20, (200, 550)), (30, (300, 900)), (40, (400, 1250)), (1, (10, 0))]
)
def test_times_lie_on_the_line_between_what_was_measured(samples: int, passes: tuple[int, int]) -> None:
    """Outside of it on the same line, and never below nothing."""
    assert Measured(PROFILE, 55).layer(DENSE, samples, 1, 1) == passes


def test_one_size_is_scaled() -> None:
    one = Profile(1, (10,), {"dense": ((100, 200),)}, (7,), 1000)
    assert Measured(one, 55).layer(DENSE, 20, 1, 1) == (200, 400)


def test_parts_by_parameter_take_their_share() -> None:
    assert Measured(PROFILE, 55).layer(DENSE, 10, 2, 1) == (50, 100)


def test_the_rest_of_a_step_is_the_losss() -> None:
    assert Measured(PROFILE, 55).layer(LOSS, 10, 1, 1) == (7, 0)


def test_layers_that_were_not_seen_cost_nothing() -> None:
    unseen = Layer("add", "pointwise", "add", ((2, 5),), (2, 5), (), 10, (0,))
    assert Measured(PROFILE, 55).layer(unseen, 10, 1, 1) == (0, 0)


def test_several_as_one_add_up() -> None:
    both = Layer("dense", "dense", "Linear + Loss", ((2, 10),), (2,), DENSE.weights, 210, (), members=(DENSE, LOSS))
    assert Measured(PROFILE, 55).layer(both, 10, 1, 1) == (107, 200)
    assert Measured(PROFILE, 55).layer(both, 10, 1, 2) == (57, 100)  # what follows takes the sum of the first's parts


def test_the_update_is_shared_where_every_rank_does_its_part() -> None:
    assert Measured(PROFILE, 55).update(55) == 1000
    assert Measured(PROFILE, 55).update(11) == 200
    assert Measured(PROFILE, 55, shares_update=True).update(55) == 500


def test_gradients_go_over_the_measured_link() -> None:
    link = Link("shm", "all_reduce_in_place", 2, latency_us=1.0, gb_per_s=1.0)
    costs = Measured(PROFILE, 110, link=link)
    assert costs.sync(DENSE, 2, 1) == round((1000 + 440) / 2)  # half of the model's parameters
    assert costs.sync(DENSE, 1, 1) is None
    assert costs.sync(LOSS, 2, 1) is None
    assert Measured(PROFILE, 110).sync(DENSE, 2, 1) is None
    copied = replace(PROFILE, copy=100)
    assert Measured(copied, 110, link=link).sync(DENSE, 2, 1) == round((1000 + 440 + 100) / 2)


def test_profile_as_json() -> None:
    assert Profile.from_json(PROFILE.to_json()) == PROFILE
