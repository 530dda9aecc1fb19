"""Layers on another device than the rest."""

import pytest
import torch
from torch import nn

from manyhands.config import Config
from manyhands.engine.modules.device_placement import place
from manyhands.errors import PlanError
from manyhands.machine.detect import detect
from manyhands.plan.plan import Plan, from_table, to_table
from manyhands.plan.spec import parse
from manyhands.train.plan_constraints import resolve

TABLE = {"axes": ["serial"], "places": [{"name": "pool*", "device": "cpu"}]}


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4 * 9, 3))


def test_a_plan_file_says_where_layers_are() -> None:
    plan = from_table(TABLE, "plan.toml")
    assert plan.places == (("pool*", "cpu"),)
    assert to_table(plan) == TABLE
    assert resolve(plan, Config(), detect()).capture == "off"


@pytest.mark.parametrize(
    ("places", "said"),
    [
        ("pool", "a list of tables"),
        ([{"name": "pool*"}], '"cpu" or "cuda" are needed'),
        ([{"name": "pool*", "device": "tpu"}], '"cpu" or "cuda" are needed'),
        ([{"name": "pool*", "device": "cpu", "rank": 1}], "nothing else"),
    ],
)
def test_bad_entries(places: object, said: str) -> None:
    with pytest.raises(PlanError, match=said):
        from_table({"axes": ["serial"], "places": places}, "plan.toml")


def test_only_one_process_has_several_devices() -> None:
    with pytest.raises(PlanError, match="places are for serial"):
        Plan(axes=parse("data:2").axes, places=(("pool*", "cpu"),))


def test_a_pattern_that_matches_nothing() -> None:
    with pytest.raises(PlanError, match=r"places 'pool\*' match no layer"):
        place(model(), [("pool*", "cpu")], torch.device("cpu"))


def test_a_layer_works_where_it_was_put() -> None:
    """The meta device stands for a GPU: nothing can be brought from there, so an error shows that it was asked for."""
    moved = model().to("meta")
    place(moved, [("*", "meta"), ("2", "cpu")], torch.device("meta"))
    with pytest.raises(NotImplementedError, match="meta"):
        moved(torch.zeros(2, 1, 8, 8, device="meta"))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_pooling_on_the_cpu_beside_a_gpu() -> None:
    x, alone = torch.randn(2, 1, 8, 8), model()
    apart = model().cuda()
    place(apart, [("1", "cpu"), ("2", "cpu")], torch.device("cuda"))
    alone(x).square().sum().backward()
    apart(x.cuda()).square().sum().backward()
    for one, other in zip(alone.parameters(), apart.parameters(), strict=True):
        torch.testing.assert_close(other.grad.cpu(), one.grad, rtol=1e-4, atol=1e-5)
