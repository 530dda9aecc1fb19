"""A graph as data: it comes back from JSON, and knows its edges, its chain and what learns."""

import json
from dataclasses import replace

import torch
from torch import nn

from manyhands.graph.coarsen import coarsen
from manyhands.graph.graph import Graph, Layer, from_json
from manyhands.graph.trace import trace
from manyhands.models.zoo import Shapes, build


def layer(name: str, after: tuple[int, ...], weights: int = 0) -> Layer:
    return Layer(
        name, "dense" if weights else "pointwise", name, ((4, 8),), (4, 8), ((weights,),) * (weights > 0), 1, after
    )


DIAMOND = Graph(4, (layer("a", ()), layer("b", (0,), 3), layer("c", (0,)), layer("d", (1, 2), 5)), "export")


def test_json_brings_back_the_same() -> None:
    model = build("resnet18", Shapes(5, (3, 32, 32)))
    model.conv.requires_grad_(False)
    graph = trace(nn.Sequential(model, nn.Identity()), torch.zeros(2, 3, 32, 32))
    for each in (graph, coarsen(graph), DIAMOND):
        told = from_json(json.loads(json.dumps(each.to_json())))
        assert told == each
        assert told.flops == each.flops
        assert told.parameters == each.parameters


def test_edges_of_a_diamond() -> None:
    assert DIAMOND.edges == ((0, 1), (0, 2), (1, 3), (2, 3))
    assert DIAMOND.before == ((1, 2), (3,), (3,), ())
    assert DIAMOND.learns == (False, True, False, True)
    assert DIAMOND.parameters == 8
    assert not DIAMOND.is_chain


def test_a_chain_takes_from_the_one_before_and_no_other() -> None:
    chain = Graph(4, (layer("a", ()), layer("b", (0,)), layer("c", (1,))), "export")
    assert chain.is_chain
    assert not replace(chain, layers=(*chain.layers, layer("d", (1,)))).is_chain
    assert not replace(chain, layers=(*chain.layers, layer("d", ()))).is_chain
