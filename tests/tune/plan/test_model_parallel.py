"""Layers in parts on this machine: what is proposed, from costs that are told."""

from dataclasses import replace

import pytest

from manyhands.config import Config, with_values
from manyhands.graph.coarsen import coarsen
from manyhands.graph.graph import Graph
from manyhands.machine.link import Link
from manyhands.machine.machine import Core, Machine
from manyhands.plan.spec import parse
from manyhands.simulate.cost.layer_profile import Profile
from manyhands.simulate.cost.links import Links
from manyhands.simulate.from_profile import predicted, predicted_cut
from manyhands.simulate.model_graph import graph_of
from manyhands.simulate.simulator import Prediction
from manyhands.train.plan_constraints import resolve
from manyhands.tune.plan import candidates, choose
from manyhands.tune.plan.model_parallel import fastest_cut

BOUND = "precision=fp32,layout=contiguous,kernels=own,compile=off,capture=off,feed=device,workers=0,backend=shm"
TWO = Machine("", "", tuple(Core(number, number, 0, 0) for number in range(2)), 2**34)
CONFIG = with_values(
    Config(),
    {"model.name": "alexnet", "data.name": "synthetic:3x56x56,20", "train.batch_size": 64, "model.width": 0.125},
)
BY_SAMPLE = resolve(parse(f"data:2,{BOUND}"), CONFIG, TWO)


@pytest.fixture(scope="module")
def graph() -> Graph:
    return coarsen(graph_of(CONFIG))


def profile(graph: Graph) -> Profile:
    """Every layer takes as long; so does the update."""
    names = [each.name for layer in graph.layers for each in (layer.members or (layer,))]
    return Profile(2, (32,), dict.fromkeys(names, ((10**6, 2 * 10**6),)), (10**6,), 10**6)


def link(gb_per_s: float) -> Link:
    return Link("shm", "all_reduce", 2, 10.0, gb_per_s)


def cut(graph: Graph, sums: float, messages: float) -> Prediction:
    found = fastest_cut(graph, BY_SAMPLE, profile(graph), (link(sums), link(messages)), CONFIG, TWO)
    assert found is not None
    return found


def whole(graph: Graph, sums: float) -> Prediction:
    return predicted(graph, BY_SAMPLE, profile(graph), Links(link(sums), link(sums)), CONFIG, TWO)


def test_heavy_weights_over_a_slow_link_are_cut(graph: Graph) -> None:
    """AlexNet's are in its dense layers: these by parameter, convolutions by sample, as one weird trick has it."""
    found = cut(graph, sums=0.1, messages=0.1)
    by = {layer.kind: split for layer, split in zip(graph.layers, found.splits, strict=True)}
    assert by["dense"].sample == 1
    assert by["conv"].sample == 2
    assert found.result.step_ns < whole(graph, 0.1).result.step_ns


@pytest.mark.parametrize("rate", [0.01, 0.1, 1.0, 100.0])
def test_none_is_slower_than_one_weird_trick(graph: Graph, rate: float) -> None:
    trick = resolve(parse(f"owt:2,{BOUND}"), CONFIG, TWO)
    preset = predicted_cut(graph, trick, profile(graph), (link(rate), link(rate)), CONFIG, TWO)
    assert cut(graph, rate, rate).result.step_ns <= preset.result.step_ns


def test_layers_that_are_no_chain_have_presets() -> None:
    config = with_values(CONFIG, {"model.name": "resnet18"})
    branched = coarsen(graph_of(config))
    found = fastest_cut(branched, BY_SAMPLE, profile(branched), (link(0.1), link(0.1)), config, TWO)
    assert found is not None
    assert (found.plan.name, found.plan.layers) in [("owt:2", ()), ("tensor:2", ())]


@pytest.mark.parametrize(("share", "slower", "cuts"), [(1.0, 1, True), (1.0, 100, False), (0.1, 1, False)])
def test_only_what_is_faster_than_whole_layers_is_proposed(
    graph: Graph, share: float, slower: int, cuts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what its layers take where they are passed through in parts, which may be longer; `share`: of the step by
    sample, that of the best plan with whole layers."""
    told = profile(graph)
    own = replace(told, layers=dict.fromkeys(told.layers, ((slower * 10**6, slower * 10**6),)))
    asked: list[str] = []
    monkeypatch.setattr(choose, "known_messages", lambda backend, machine: asked.append(backend) or link(0.1))
    monkeypatch.setattr(choose, "profiles", lambda config, plans, sizes, machine: [own] * len(plans))
    best = candidates.Candidate(BY_SAMPLE, share * whole(graph, 0.1).result.step_ms)
    found = choose._cut(graph, [(BY_SAMPLE, told, Links(link(0.1), link(0.1)))], best, CONFIG, TWO)
    assert (found is not None) == cuts
    assert asked == (["shm"] if share == 1 else []), "messages are timed where cutting may pay"
