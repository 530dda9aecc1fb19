"""The words of a plan as splits: each fits its layer, all devices are used, stages are balanced."""

from itertools import combinations, pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from manyhands.errors import PlanError
from manyhands.graph.coarsen import coarsen
from manyhands.graph.graph import Graph
from manyhands.graph.trace import trace
from manyhands.models.zoo import Options, Shapes, build
from manyhands.plan.presets import splits
from manyhands.plan.sharding import Split, on
from manyhands.plan.sharding_rules import fits
from manyhands.plan.spec import parse
from manyhands.plan.stages import Stage, balance, stages_of

TEXT = Shapes(4, (7,), 50)
MODELS = {
    "alexnet": (Shapes(5, (3, 64, 64)), Options(width=0.25)),
    "resnet18": (Shapes(5, (3, 32, 32)), Options(width=0.25)),
    "locally": (Shapes(5, (3, 32, 32)), Options()),
    "text": (TEXT, Options()),
    "transformer": (TEXT, Options()),
}
BATCH = 48


@pytest.fixture(params=[*MODELS, "fused alexnet", "fused resnet18", "fused transformer"], name="graph", scope="module")
def _graph(request: pytest.FixtureRequest) -> Graph:
    return graph_of(request.param)


def graph_of(name: str) -> Graph:
    shapes, options = MODELS[name.removeprefix("fused ")]
    inputs = torch.ones(2, *shapes.shape, dtype=torch.long if shapes.vocabulary else torch.float32)
    graph = trace(build(name.removeprefix("fused "), shapes, options), inputs)
    return coarsen(graph) if name.startswith("fused") else graph


def chosen(words: str, graph: Graph, batch: int = BATCH) -> tuple[Split, ...]:
    return splits(parse(words).axes, graph, batch)


def by_name(words: str, graph: Graph) -> dict[str, str]:
    return {layer.name: str(split) for layer, split in zip(graph.layers, chosen(words, graph), strict=True)}


@pytest.mark.parametrize(
    ("words", "devices"),
    [
        ("plain", 1),
        ("serial", 1),
        ("data:1", 1),
        ("data:4", 4),
        ("ddp:3", 3),
        ("tensor:2", 2),
        ("tensor:8", 8),
        ("owt:1", 1),
        ("owt:6", 6),
        ("pipeline:3", 3),
        ("data:4,tensor:2", 8),
        ("data:2,pipeline:3", 6),
        ("tensor:2,pipeline:2", 4),
        ("data:2,tensor:3,pipeline:2", 12),
    ],
)
def test_every_split_fits_and_every_device_is_used(words: str, devices: int, graph: Graph) -> None:
    found = chosen(words, graph)
    for layer, split in zip(graph.layers, found, strict=True):
        assert fits(layer, split, BATCH) is None
    used = [set(split.devices) for split in found]
    assert set().union(*used) == set(range(devices))
    if "pipeline" not in words:
        assert all(each == set(range(devices)) for each in used)


@pytest.mark.parametrize(
    ("words", "stages", "width"),
    [("pipeline:3", 3, 1), ("pipeline:5", 5, 1), ("data:2,pipeline:3", 3, 2), ("data:2,tensor:2,pipeline:4", 4, 4)],
)
def test_stages_are_runs_of_layers_on_devices_of_their_own(words: str, stages: int, width: int, graph: Graph) -> None:
    found = stages_of(chosen(words, graph))
    assert [stage.devices for stage in found] == [
        tuple(range(number * width, (number + 1) * width)) for number in range(stages)
    ]
    assert [number for stage in found for number in stage.layers] == list(range(len(graph.layers)))
    assert all(stage.layers for stage in found)


@pytest.mark.parametrize(("words", "positions", "width"), [("pipeline:2", 2, 1), ("data:2,tensor:2,pipeline:3", 3, 4)])
def test_chunks_come_around(words: str, positions: int, width: int, graph: Graph) -> None:
    found = stages_of(splits(parse(words).axes, graph, BATCH, chunks=2))
    each = [tuple(range(number * width, (number + 1) * width)) for number in range(positions)]
    assert [stage.devices for stage in found] == each * 2


def test_data_cuts_every_layer_by_sample(graph: Graph) -> None:
    assert set(chosen("data:4", graph)) == {on(0, sample=4)}
    assert chosen("ddp:4", graph) == chosen("data:4", graph)


def test_one_weird_trick() -> None:
    found = by_name("owt:4", graph_of("alexnet"))
    assert {found[f"conv{number}"] for number in range(1, 6)} == {"sample 4"}
    assert found["pool5"] == found["flatten"] == "sample 4"
    assert found["dense_a"] == found["act_a"] == found["dropout_b"] == found["dense_b"] == "parameter 4"
    assert found["output"] == "parameter 4"
    assert found["loss"] == "sample 4"
    few = by_name("owt:6", graph_of("alexnet"))  # five classes
    assert few["dense_b"] == "parameter 6"
    assert few["output"] == "sample 6"


def test_tensor_pairs_layers_so_that_two_cost_one_exchange() -> None:
    found = by_name("tensor:4", graph_of("transformer"))
    attention = "layers.0.attention"
    assert [found[f"{attention}.{name}"] for name in ("query", "key", "value", "heads")] == ["parameter 4"] * 4
    assert found[f"{attention}.out"] == "reduction 4"
    assert found["layers.0.add"] == found["layers.0.norm2"] == "copies 4"
    assert (found["layers.0.dense.wide"], found["layers.0.dense.narrow"]) == ("parameter 4", "reduction 4")
    many = by_name("tensor:8", graph_of("transformer"))  # more than there are heads
    assert many[f"{attention}.heads"] == "copies 8"
    assert many[f"{attention}.out"] == "parameter 8"
    convolutions = by_name("tensor:2", graph_of("alexnet"))
    assert [convolutions[f"conv{number}"] for number in (1, 2, 3, 4)] == ["parameter 2", "reduction 2"] * 2


def test_a_mesh_counts_stages_slowest_then_data_then_tensor() -> None:
    found = chosen("data:2,tensor:3,pipeline:2", graph_of("fused alexnet"))
    assert found[0] == Split(sample=2, parameter=3, devices=(0, 1, 2, 3, 4, 5))
    assert found[1] == Split(sample=2, reduction=3, devices=(0, 1, 2, 3, 4, 5))
    assert found[-1] == Split(sample=2, copies=3, devices=(6, 7, 8, 9, 10, 11))


def test_stages_can_be_balanced_by_something_else_than_work() -> None:
    graph = graph_of("fused alexnet")
    last = ("dense_b", "output")
    found = splits(parse("pipeline:2").axes, graph, BATCH, lambda layer: float(layer.name in last))
    assert [graph.layers[stage.layers[-1]].name for stage in stages_of(found)] == ["dense_b", "loss"]


@pytest.mark.parametrize(
    ("words", "batch", "told"),
    [
        ("data:9", 8, "plan 'data:9' cuts 8 samples into 9 parts: use a batch of at least 9"),
        ("ddp:9", 8, "plan 'ddp:9' cuts 8 samples into 9 parts: use a batch of at least 9"),
        ("owt:9", 8, "plan 'owt:9' cuts 8 samples into 9 parts: use a batch of at least 9"),
        ("data:9,tensor:2", 8, "plan 'data:9,tensor:2' cuts 8 samples into 9 parts: use a batch of at least 9"),
        ("pipeline:10", 8, "plan 'pipeline:10' has 10 stages, the model 9 layers: use at most pipeline:9"),
        ("server:3+1", 8, "plan 'server:3+1' cannot be simulated, it does not say how layers are split: use plain, "),
        ("local:2", 8, "plan 'local:2' cannot be simulated, it does not say how layers are split: use plain, "),
        ("auto", 8, "plan 'auto' cannot be simulated, it does not say how layers are split: use plain, serial, data"),
    ],
)
def test_what_cannot_be_is_named(words: str, batch: int, told: str) -> None:
    with pytest.raises(PlanError) as error:
        chosen(words, graph_of("fused alexnet"), batch)
    assert str(error.value).startswith(told)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 20), min_size=1, max_size=9), st.data())
def test_balance_is_the_best_there_is(weights: list[int], data: st.DataObject) -> None:
    stages = data.draw(st.integers(1, len(weights)))
    found = balance(weights, stages)
    assert sorted(set(found)) == list(range(stages))
    assert found == sorted(found)

    def heaviest(cuts: tuple[int, ...]) -> int:
        ends = (0, *cuts, len(weights))
        return max(sum(weights[low:high]) for low, high in pairwise(ends))

    best = min(heaviest(cuts) for cuts in combinations(range(1, len(weights)), stages - 1))
    assert max(sum(w for w, s in zip(weights, found, strict=True) if s == stage) for stage in range(stages)) == best


def test_stages_of_splits_by_hand() -> None:
    told = [on(0), on(0), on(1, sample=2), on(0)]
    assert stages_of(told) == [Stage((0, 1), (0,)), Stage((2,), (1, 2)), Stage((3,), (0,))]
