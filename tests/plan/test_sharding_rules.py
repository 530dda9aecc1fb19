"""Which splits a layer supports: by its kind, its groups, and what is fused into it."""

import pytest
import torch
from torch import nn

from manyhands.graph.coarsen import coarsen
from manyhands.graph.graph import Graph
from manyhands.graph.trace import trace
from manyhands.models.zoo import Options, Shapes, build
from manyhands.plan.presets import splits
from manyhands.plan.sharding import Split, on
from manyhands.plan.sharding_rules import Ways, fits, grains, ways
from manyhands.plan.spec import parse

BATCH = 32
TEXT = Shapes(4, (7,), 50)


def traced(module: nn.Module, *shape: int, ids: bool = False) -> Graph:
    return trace(module, torch.ones(2, *shape, dtype=torch.long if ids else torch.float32))


def tensor(graph: Graph, degree: int) -> list[Split]:
    return list(splits(parse(f"tensor:{degree}").axes, graph, BATCH))


def limits(graph: Graph) -> dict[str, tuple[int, int]]:
    """The most parts by parameter and by reduction of each layer."""
    found = {layer.name: ways(layer, BATCH) for layer in graph.layers}
    return {name: (most.parameter, most.reduction) for name, most in found.items()}


@pytest.mark.parametrize(
    ("module", "shape", "expected"),
    [
        (nn.Conv2d(4, 6, 3), (4, 8, 8), Ways(BATCH, 6, 4, False)),
        (nn.Conv1d(4, 6, 3), (4, 8), Ways(BATCH, 6, 4, False)),
        (nn.Conv3d(4, 6, 3), (4, 5, 5, 5), Ways(BATCH, 6, 4, False)),
        (nn.ConvTranspose2d(4, 6, 3), (4, 8, 8), Ways(BATCH, 6, 4, False)),
        (nn.Conv2d(4, 6, 3, groups=2), (4, 8, 8), Ways(BATCH, 1, 1, False)),
        (nn.Conv2d(4, 4, 3, groups=4), (4, 8, 8), Ways(BATCH, 1, 1, False)),
        (nn.Linear(8, 6), (8,), Ways(BATCH, 6, 8, False)),
        (nn.Linear(8, 6), (5, 8), Ways(BATCH, 6, 8, False)),
        (nn.Linear(8, 6), (7, 7, 8), Ways(BATCH, 6, 8, False)),
        (nn.BatchNorm2d(4), (4, 8, 8), Ways(BATCH, 4, 1, True)),
        (nn.BatchNorm1d(4), (4, 8), Ways(BATCH, 4, 1, True)),
        (nn.BatchNorm1d(4), (4,), Ways(BATCH, 4, 1, True)),
        (nn.InstanceNorm2d(4), (4, 8, 8), Ways(BATCH, 4, 1, True)),
        (nn.LayerNorm(8), (5, 8), Ways(BATCH, 1, 1, True)),
        (nn.GroupNorm(2, 4), (4, 8, 8), Ways(BATCH, 1, 1, True)),
        (nn.MaxPool2d(2), (4, 8, 8), Ways(BATCH, 4, 1, True)),
        (nn.ReLU(), (4, 8, 8), Ways(BATCH, 4, 1, True)),
        (nn.ReLU(), (5, 8), Ways(BATCH, 8, 1, True)),
        (nn.Softmax(dim=-1), (8,), Ways(BATCH, 1, 1, True)),
    ],
    ids=str,
)
def test_one_module(module: nn.Module, shape: tuple[int, ...], expected: Ways) -> None:
    assert ways(traced(nn.Sequential(module), *shape).layers[0], BATCH) == expected


def test_sequences_and_embeddings() -> None:
    most = limits(traced(build("text", TEXT), 7, ids=True))
    assert most["embedding"] == (128, 50)  # by dimension, and by rows of the table
    assert most["recurrent"] == (128, 1)
    assert most["pool"] == (1, 1)  # takes a mask of positions beside the features
    assert most["output"] == (4, 128)
    assert most["loss"] == (1, 1)


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (nn.LSTM(8, 6, 2, batch_first=True), 6),
        (nn.GRU(8, 6, batch_first=True, bidirectional=True), 6),  # as many in either direction
        (nn.RNN(8, 6, batch_first=True, bias=False), 6),
        (nn.LSTM(8, 6, batch_first=True, proj_size=3), 1),  # results are not hidden units
    ],
    ids=str,
)
def test_recurrent_layers_are_cut_by_their_hidden_units(module: nn.Module, expected: int) -> None:
    layer = traced(module, 5, 8).layers[0]
    assert ways(layer, BATCH) == Ways(BATCH, expected, 1, False)
    for parameter in module.parameters():
        parameter.requires_grad = False
    assert ways(traced(module, 5, 8).layers[0], BATCH).parameter == 1  # of what is frozen the shapes are not known


def test_rows_of_a_table_are_known_of_an_embedding_alone() -> None:
    words = nn.Sequential(nn.EmbeddingBag(50, 8), nn.Linear(8, 4))
    assert limits(traced(words, 7, ids=True))["0"] == (8, 1)


def test_attention_is_cut_between_heads() -> None:
    most = limits(traced(build("transformer", TEXT), 7, ids=True))
    assert most["layers.0.attention.heads"] == (4, 1)
    assert most["layers.0.attention.query"] == (128, 128)
    assert most["layers.0.norm1"] == (1, 1)
    assert most["layers.0.add"] == (128, 1)


def test_a_second_call_is_cut_as_the_first() -> None:
    dense = nn.Linear(8, 8)
    conv = nn.Conv2d(4, 4, 3, padding=1, groups=2)
    assert limits(traced(nn.Sequential(dense, nn.ReLU(), dense), 8))["0@2"] == (8, 8)
    assert limits(traced(nn.Sequential(conv, nn.ReLU(), conv), 4, 5, 5))["0@2"] == (1, 1)


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ((nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()), (6, 4)),
        ((nn.Conv2d(4, 6, 3), nn.GroupNorm(2, 6), nn.ReLU()), (1, 1)),  # what is fused needs all features
        ((nn.Conv2d(4, 4, 3, groups=4), nn.ReLU()), (1, 1)),
        ((nn.ZeroPad2d(1), nn.Conv2d(4, 6, 3)), (6, 1)),  # the batch is padded whole
        ((nn.Flatten(), nn.Linear(4 * 64, 6), nn.Softmax(dim=-1)), (1, 1)),
    ],
)
def test_fused_layers_are_cut_as_all_their_members_can(
    layers: tuple[nn.Module, ...], expected: tuple[int, int]
) -> None:
    fused = coarsen(traced(nn.Sequential(*layers), 4, 8, 8))
    assert len(fused.layers) == 2
    most = ways(fused.layers[0], BATCH)
    assert (most.parameter, most.reduction) == expected


def test_queries_are_cut_where_heads_are() -> None:
    graph = coarsen(traced(build("transformer", TEXT), 7, ids=True))
    found = dict(zip((layer.name for layer in graph.layers), grains(graph, tensor(graph, 3)), strict=True))
    attention = "layers.0.attention"
    assert [found[f"{attention}.{name}"].made for name in ("query", "key", "value", "heads")] == [4] * 4
    assert found[f"{attention}.out"].taken == 4
    assert found["layers.0.dense.wide"].made == 1
    mixed = tensor(graph, 3)
    mixed[[layer.name for layer in graph.layers].index(f"{attention}.heads")] = on(0, copies=3)
    assert grains(graph, mixed)[[layer.name for layer in graph.layers].index(f"{attention}.query")].made == 1


def test_what_was_a_channel_stays_together() -> None:
    graph = coarsen(traced(nn.Sequential(nn.Conv2d(3, 10, 3), nn.ReLU(), nn.Flatten(), nn.Linear(360, 4)), 3, 8, 8))
    chosen = [on(0, parameter=4), on(0, reduction=4), on(0, copies=4)]
    assert [grain.taken for grain in grains(graph, chosen)] == [1, 10, 1]
    assert grains(graph, [on(0, parameter=2), *chosen[1:]])[1].taken == 1


@pytest.mark.parametrize("name", ["alexnet", "resnet50", "locally"])
def test_every_layer_of_the_zoo_can_be_asked(name: str) -> None:
    graph = traced(build(name, Shapes(5, (3, 32, 32)), Options(width=0.25)), 3, 32, 32)
    for layer in (*graph.layers, *coarsen(graph).layers):
        most = ways(layer, BATCH)
        assert most.sample == BATCH
        assert most.parameter >= 1
        assert most.reduction >= 1


def test_what_does_not_fit_is_named() -> None:
    layer = traced(nn.Sequential(nn.Linear(8, 6)), 8).layers[0]
    assert fits(layer, on(0, sample=BATCH), BATCH) is None
    assert fits(layer, on(0, parameter=6), BATCH) is None
    assert fits(layer, on(0, reduction=8, copies=9), BATCH) is None
    assert fits(layer, on(0, sample=33), BATCH) == "sample=33: layer 0 (Linear) can be cut into at most 32"
    assert fits(layer, on(0, parameter=7), BATCH) == "parameter=7: layer 0 (Linear) can be cut into at most 6"
    assert fits(layer, on(0, reduction=9), BATCH) == "reduction=9: layer 0 (Linear) can be cut into at most 8"
