"""Stages and positions as the splits of layers tell them; schedules that they do not allow are refused."""

import pytest

from manyhands.errors import PlanError
from manyhands.graph.graph import Graph, Layer
from manyhands.plan.layer_rules import NamedSplit
from manyhands.plan.pipeline_schedule import Action, orders
from manyhands.plan.plan import Plan
from manyhands.plan.resolve import splits_of
from manyhands.plan.sharding import on
from manyhands.plan.spec import parse
from manyhands.plan.stages import Pipeline, pipeline_of

BATCH = 64


def graph(layers: int) -> Graph:
    """Equal dense layers, one after the other."""
    return Graph(
        2,
        tuple(
            Layer(f"dense_{number}", "dense", "Linear", ((2, 8),), (2, 8), ((8, 8),), 100, (number - 1,) * (number > 0))
            for number in range(layers)
        ),
        "export",
    )


def pipeline(words: str, layers: int = 8, **named: list[int]) -> Pipeline:
    axes = parse(words)
    some = tuple(NamedSplit(name, on(devices[0], sample=len(devices))) for name, devices in named.items())
    plan = Plan(axes=axes.axes, layers=some, **axes.said())
    return pipeline_of(plan, splits_of(plan, graph(layers), BATCH, 8))


def test_each_position_has_devices_of_its_own() -> None:
    found = pipeline("data:2,pipeline:2,schedule=1f1b")
    assert found.stage == (0, 0, 0, 0, 1, 1, 1, 1)
    assert found.position == {0: 0, 1: 0, 2: 1, 3: 1}
    assert found.orders(3) == orders("1f1b", 2, 3)
    assert found.kept(5) == (2, 2, 2, 2, 1, 1, 1, 1)


def test_interleaved_stages_come_around() -> None:
    found = pipeline("pipeline:2,schedule=interleaved")
    assert found.stage == (0, 0, 1, 1, 2, 2, 3, 3)
    assert found.position == {0: 0, 1: 1}
    assert {action.stage for action in found.orders(4)[1]} == {1, 3}


def test_interleaved_over_one_device_is_one_stage() -> None:
    found = pipeline("pipeline:1,schedule=interleaved")
    assert found.stage == (0,) * 8
    assert found.orders(1) == ((Action("forward", 0, 0), Action("backward", 0, 0)),)


def test_layers_may_be_on_some_devices_of_their_position() -> None:
    """Stages are told by positions: dense_1 is on one device of the first, alone."""
    found = pipeline("data:2,pipeline:2,schedule=1f1b", dense_1=[1])
    assert found.stage == (0, 0, 0, 0, 1, 1, 1, 1)


def test_sets_that_share_a_device_are_one_position() -> None:
    found = pipeline("pipeline:4", dense_1=[0], dense_3=[2], dense_6=[0, 1, 2])
    assert found.position == {0: 0, 1: 0, 2: 0, 3: 1}
    assert found.kept(5) == (5,) * 8


@pytest.mark.parametrize("schedule", ["1f1b", "interleaved", "zerobubble"])
@pytest.mark.parametrize("named", [{"dense_3": [0, 1]}, {"dense_7": [0]}, {"dense_0": [1]}, {"dense_6": [2]}])
def test_stages_that_share_ranks_or_come_in_another_order_need_gpipe(
    schedule: str, named: dict[str, list[int]]
) -> None:
    with pytest.raises(PlanError) as caught:
        pipeline(f"pipeline:2,schedule={schedule}", **named)
    told = str(caught.value)
    assert told.startswith(f"plan pipeline:2: schedule={schedule} needs {4 if schedule == 'interleaved' else 2} stages")
    assert "say schedule=gpipe" in told
    assert "\n" not in told
    assert pipeline("pipeline:2,schedule=gpipe", **named).schedule == "gpipe"


def test_too_few_layers() -> None:
    with pytest.raises(
        PlanError, match=r"has 10 stages \(2 on each device\), the model 9 layers: use at most pipeline:4"
    ):
        pipeline("pipeline:5,schedule=interleaved", 9)
    assert max(pipeline("pipeline:4,schedule=interleaved", 9).stage) == 7


def test_stages_are_balanced_by_what_is_measured() -> None:
    plan = parse("pipeline:2")
    cost = {"dense_0": 5.0}
    found = splits_of(plan, graph(6), BATCH, 2, lambda layer: cost.get(layer.name, 1.0))
    assert pipeline_of(plan, found).stage == (0, 1, 1, 1, 1, 1)
    equal = splits_of(parse("pipeline:2,balance=equal"), graph(6), BATCH, 2, lambda layer: cost.get(layer.name, 1.0))
    assert pipeline_of(plan, equal).stage == (0, 0, 0, 1, 1, 1)
