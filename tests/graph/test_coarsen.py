"""Fused graphs: nothing is lost, and only what goes with a layer goes into it."""

from collections import Counter

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from manyhands.graph.coarsen import coarsen
from manyhands.graph.graph import Graph, Layer
from manyhands.graph.trace import trace
from manyhands.models.zoo import Options, Shapes, build

TEXT = Shapes(4, (7,), 50)
CASES = {
    "alexnet": ("alexnet", Shapes(5, (3, 64, 64)), Options(width=0.25, head="6x6")),
    "convnet": ("convnet", Shapes(10, (1, 28, 28)), Options(batch_norm=True)),
    "resnet50": ("resnet50", Shapes(5, (3, 64, 64)), Options(width=0.25)),
    "locally": ("locally", Shapes(3, (2, 15, 12)), Options()),
    "text": ("text", TEXT, Options()),
    "bag": ("text", TEXT, Options(cell="bag")),
    "transformer": ("transformer", TEXT, Options()),
}


def graph_of(case: str) -> Graph:
    name, shapes, options = CASES[case]
    inputs = torch.ones(2, *shapes.shape, dtype=torch.long if shapes.vocabulary else torch.float32)
    return trace(build(name, shapes, options), inputs)


def found(graph: Graph, name: str) -> Layer:
    return next(each for each in graph.layers if name in each.names)


@pytest.mark.parametrize("case", CASES)
def test_nothing_is_lost(case: str) -> None:
    graph = graph_of(case)
    fused = coarsen(graph)
    assert fused.parameters == graph.parameters
    assert fused.flops == graph.flops
    assert len(fused.layers) < len(graph.layers)
    members = [each for layer in fused.layers for each in layer.members or (layer,)]
    assert Counter(each.name for each in members) == Counter(each.name for each in graph.layers)
    assert {each.name: each.weights for each in members} == {each.name: each.weights for each in graph.layers}


@pytest.mark.parametrize("case", CASES)
def test_what_follows_what_stays(case: str) -> None:
    """Every edge between two layers is inside one fused layer or between those that have them."""
    graph = graph_of(case)
    fused = coarsen(graph)
    home = {name: number for number, layer in enumerate(fused.layers) for name in layer.names}
    between = {(home[graph.layers[source].name], home[graph.layers[target].name]) for source, target in graph.edges}
    assert {(source, target) for source, target in between if source != target} == set(fused.edges)
    assert all(source < target for source, target in fused.edges)
    for number, layer in enumerate(fused.layers):
        assert layer.name in layer.names
        assert [fused.layers[source].output for source in layer.after] == list(layer.inputs) or not layer.after
        assert layer.output == next(each for each in graph.layers if each.name == layer.names[-1]).output
        assert [home[name] for name in layer.names] == [number] * len(layer.names)


def test_a_chain_stays_a_chain_of_the_layers_that_learn() -> None:
    fused = coarsen(graph_of("alexnet"))
    assert fused.is_chain
    learned = [f"conv{number}" for number in range(1, 6)] + ["dense_a", "dense_b", "output"]
    assert [each.name for each in fused.layers] == [*learned, "loss"]
    assert found(fused, "pad1").name == "conv1"  # what prepares the batch goes with the first that learns
    assert found(fused, "flatten").name == "conv5"
    assert fused.layers[0].operation == "ZeroPad2d + Conv2d + ReLU + MaxPool2d + ZeroPad2d"
    assert coarsen(fused) == fused


def test_a_layer_that_two_others_take_is_not_swallowed() -> None:
    fused = coarsen(graph_of("resnet50"))
    source = found(fused, "stage1_block1.act")  # the next block takes it twice
    assert source.names[-1] == "stage1_block1.act"
    number = fused.layers.index(source)
    assert len(fused.before[number]) == 2
    assert found(fused, "stage1_block1.add") is source
    assert found(fused, "stage1_block1.branch.norm1").name == "stage1_block1.branch.conv1"


def test_an_output_taken_twice_keeps_what_follows_apart() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            y = self.a(x)
            return self.b(F.relu(y) + torch.tanh(y))

    fused = coarsen(trace(Twice(), torch.randn(2, 8)))
    assert [each.names for each in fused.layers] == [("a",), ("relu",), ("tanh",), ("add",), ("b",), ("loss",)]


def test_an_unknown_layer_that_learns_is_not_taken_for_a_small_one() -> None:
    fused = coarsen(graph_of("locally"))
    assert found(fused, "local1") is not found(fused, "conv")
    assert found(fused, "local1").names[0] == "local1"


def test_frozen_parameters_and_groups_are_kept() -> None:
    model = nn.Sequential(nn.Conv2d(4, 4, 3, groups=2), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 3))
    model[0].requires_grad_(False)
    fused = coarsen(trace(model, torch.randn(2, 4, 4, 4)))
    assert fused.layers[0].frozen == 4 * 2 * 9 + 4
    assert fused.layers[0].parameters == 8
    assert (fused.layers[0].name, fused.layers[0].kind, fused.layers[0].groups) == ("0", "conv", 2)
