"""Every way to split the layers of a model trains what one device trains."""

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from manyhands.graph.graph import Graph
from manyhands.plan.pipeline_schedule import SCHEDULES
from manyhands.simulate.search.proposals import draw
from manyhands.simulate.search.space import Space
from manyhands.simulate.step.arrays import LAYER, PLAN, WAY
from numerics.cases import BATCH
from numerics.split_cases import MODELS, graph_of
from rank_pool import Pool

CASE = "numerics.split_cases:same_as_one_device"
LAST = "numerics.split_cases:channels_last_same_as_one_device"
ON_GPU = "numerics.split_cases:same_on_a_gpu"
LAYERS = "numerics.layer_cases:same_as_one_device"
PRESETS = {"tensor:2": 2, "tensor:3": 3, "owt:2": 2, "owt:4": 4, "pipeline:2": 2, "pipeline:3": 3, "data:2,tensor:2": 4}
LONG = {"data:2": 2, "data:3": 3, "data:4": 4, "tensor:4": 4, "owt:3": 3, "pipeline:4": 4}
LONG |= {"data:2,pipeline:2": 4, "tensor:2,pipeline:2": 4}
EIGHT = ("tensor:8", "owt:8", "data:8", "data:2,tensor:4", "data:2,tensor:2,pipeline:2", "tensor:2,pipeline:4")
SHORT, ALL = 3, 30  # random plans of each model in `make test`, and in `make test-long`


SLOW = ("lstm", "resnet18")  # of which `make test` takes some
SOME = ("tensor:3", "pipeline:2", "data:2,tensor:2")


@pytest.mark.parametrize(
    ("model", "plan", "world"),
    [
        pytest.param(
            model, plan, world, marks=[pytest.mark.long] * (plan in LONG or (model in SLOW and plan not in SOME))
        )
        for plan, world in {**PRESETS, **LONG}.items()
        for model in MODELS
    ],
)
def test_presets(pools: Any, model: str, plan: str, world: int) -> None:
    pools("gloo").run(CASE, "gloo", world, model, "fp64", plan, {})


@pytest.mark.parametrize(
    "model", ["convnet", *(pytest.param(each, marks=pytest.mark.long) for each in ("alexnet", "resnet18"))]
)
@pytest.mark.parametrize(
    ("plan", "world"),
    [("tensor:3", 3), ("owt:2", 2), ("pipeline:2,microbatches=3,recompute=on", 2), ("data:2,tensor:2", 4)],
)
def test_images_whose_channels_are_last(pools: Any, model: str, plan: str, world: int) -> None:
    changes = {"train__accumulate": 3} if "microbatches" in plan and model != "convnet" else {}
    words = plan.replace("microbatches=3,", "") if changes else plan
    pools("gloo").run(LAST, "gloo", world, model, "fp64", words, changes)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(
    ("plan", "world"),
    [("tensor:2", 2), ("owt:2", 2), ("pipeline:2", 2), ("data:2,tensor:2", 4), ("random:1", 4), ("random:2", 4)],
)
@pytest.mark.parametrize("model", MODELS)
def test_on_a_gpu(pools: Any, model: str, plan: str, world: int) -> None:
    pools("gloo").run(ON_GPU, "gloo", world, model, "fp64", plan, {})


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("model", ["convnet", "transformer"])
def test_schedules_on_a_gpu(pools: Any, model: str, schedule: str) -> None:
    pools("gloo").run(ON_GPU, "gloo", 2, model, "fp64", f"pipeline:2,microbatches=4,schedule={schedule}", {})


@pytest.fixture(scope="module")
def eight() -> Iterator[Pool]:
    """As many ranks."""
    pool = Pool([], 8)
    yield pool
    pool.stop()


@pytest.mark.long
@pytest.mark.parametrize("plan", EIGHT)
@pytest.mark.parametrize("model", MODELS)
def test_eight_ranks(eight: Pool, model: str, plan: str) -> None:
    eight.run(CASE, "gloo", 8, model, "fp64", plan, {}, timeout=60)


@pytest.mark.long
@pytest.mark.parametrize("backend", ["shm", "mpi"])
@pytest.mark.parametrize("plan", ["tensor:2", "random:7"])
@pytest.mark.parametrize("model", [pytest.param("alexnet", marks=pytest.mark.long), "text", "transformer"])
def test_other_backends(pools: Any, model: str, plan: str, backend: str) -> None:
    pools(backend).run(CASE, backend, 2, model, "fp64", plan, {})


@pytest.mark.parametrize("model", MODELS)
def test_single_precision(pools: Any, model: str) -> None:
    pools("gloo").run(CASE, "gloo", 4, model, "fp32", "data:2,tensor:2", {})


graphs = cache(graph_of)


def walked(graph: Graph, seed: int, world: int = 4) -> list[list[int]]:
    """The plan at which a walk of the search arrives that takes every change it proposes, but for shifts."""
    rng, space = np.random.default_rng(seed), Space.of(graph, BATCH, world)
    plan = space.plans[rng.integers(len(space.plans))].copy()
    count = 3 * len(plan)
    for low, high, source, number, first in draw(rng, space, len(space.plans), 0, count, count)[0]:
        for layer in range(low, high):
            wanted = {
                WAY: np.append(space.ways[number % len(space.ways)], first),
                LAYER: plan[number % len(plan)],
                PLAN: space.plans[number % len(space.plans), layer],
            }.get(source, plan[layer])
            if (wanted[:3] <= space.limits[layer]).all():
                plan[layer] = wanted
    return [[int(each) for each in row] for row in plan]


@pytest.mark.parametrize(
    "seed", [*range(SHORT), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(SHORT, ALL))]
)
@pytest.mark.parametrize("model", MODELS)
def test_plans_of_the_search(pools: Any, model: str, seed: int) -> None:
    pools("gloo").run(CASE, "gloo", 4, model, "fp64", f"splits:{json.dumps(walked(graphs(model), seed))}", {})


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("model", MODELS)
def test_random_plans(pools: Any, model: str, seed: int) -> None:
    """Splits that no search proposes: of three ranks, say, beside some that do nothing."""
    pools("gloo").run(CASE, "gloo", 4, model, "fp64", f"random:{seed}", {})


@pytest.mark.parametrize("name", ["lstm", "gru", "rnn", "both ways", "last of a gru", "last of an lstm"])
@pytest.mark.parametrize("degrees", [{"parameter": 3}, {"sample": 2, "parameter": 2}], ids=str)
def test_hidden_units(pools: Any, name: str, degrees: dict[str, int]) -> None:
    world = 3 if degrees == {"parameter": 3} else 4
    pools("gloo").run(LAYERS, "gloo", world, name, "recurrent", degrees)


@pytest.mark.parametrize("name", ["gru", "both ways"])
def test_hidden_units_on_ranks_in_any_order(pools: Any, name: str) -> None:
    pools("gloo").run(LAYERS, "gloo", 3, name, "recurrent", {"parameter": 3}, (2, 0, 1))


@pytest.mark.parametrize(("name", "world"), [("last of an lstm", 3), ("projected", 2)])
def test_last_states_by_sample(pools: Any, name: str, world: int) -> None:
    pools("gloo").run(LAYERS, "gloo", world, name, "recurrent", {"sample": 2})


def test_what_is_gathered_is_dropped_alike(pools: Any) -> None:
    pools("gloo").run("numerics.layer_cases:the_same_is_dropped", "gloo", 3)


@pytest.mark.parametrize("degrees", [{"reduction": 3}, {"parameter": 2, "reduction": 2}, {"sample": 2, "reduction": 2}])
def test_rows_of_a_table(pools: Any, degrees: dict[str, int]) -> None:
    pools("gloo").run(LAYERS, "gloo", 4, "gru", "embedding", degrees)


@pytest.mark.parametrize("degrees", [{"reduction": 2}, {"reduction": 3}, {"sample": 2, "reduction": 2}])
def test_heads(pools: Any, degrees: dict[str, int]) -> None:
    pools("gloo").run(LAYERS, "gloo", 4, "encoder", "layer.self_attn", degrees)


def test_uneven_heads(pools: Any) -> None:
    """Four over three ranks; their queries, keys and values are cut where they are."""
    pools("gloo").run(CASE, "gloo", 3, "transformer", "fp64", "tensor:3", {"model.width": 1.0})


@pytest.mark.parametrize(
    ("model", "pattern"),
    [("transformer", "layers.*"), ("text", "[er]*"), ("lstm", "[er]*"), ("mlp", "*"), ("resnet18", "*conv*")],
)
def test_no_rank_has_more_than_its_part(pools: Any, model: str, pattern: str) -> None:
    pools("gloo").run("numerics.split_cases:weights_are_cut", "gloo", 2, model, pattern)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_no_rank_needs_all_scores(pools: Any, smoothing: float) -> None:
    pools("gloo").run("numerics.split_cases:scores_stay", "gloo", 4, smoothing)
    changes = {"train.label_smoothing": smoothing}
    pools("gloo").run(CASE, "gloo", 4, "mlp", "fp64", "tensor:4", changes)
    pools("gloo").run(CASE, "gloo", 4, "mlp", "fp64", "data:2,tensor:2", changes)


def test_scores_are_told(pools: Any) -> None:
    pools("gloo").run("numerics.split_cases:scores_are_told", "gloo", 3, "mlp", "tensor:3")


def test_a_pair_of_dense_layers_costs_one_exchange(pools: Any) -> None:
    for world in (2, 3):
        pools("gloo").run("numerics.split_cases:one_exchange_a_pair", "gloo", world)


@pytest.mark.long
@pytest.mark.parametrize("world", [2, 3, 4])
@pytest.mark.parametrize("model", ["convnet", "alexnet"])
def test_one_weird_trick_in_turns(pools: Any, model: str, world: int) -> None:
    """Dense layers work on the samples of one rank after the other."""
    pools("gloo").run(CASE, "gloo", world, model, "fp64", f"owt:{world},boundary=turns", {})


@pytest.mark.parametrize("backend", ["gloo", "shm", pytest.param("mpi", marks=pytest.mark.long)])
def test_dense_layers_learn_in_every_turn(pools: Any, backend: str) -> None:
    pools(backend).run("numerics.boundary_cases:learns_in_turns", backend, 2, "convnet")
    pools(backend).run("numerics.boundary_cases:learns_in_turns", backend, 3, "convnet")


@pytest.mark.parametrize(("plan", "world"), [("tensor:2", 2), ("tensor:3", 3), ("random:1", 4)])
def test_locally_connected(pools: Any, plan: str, world: int) -> None:
    """By output channels, which need no window of another rank."""
    pools("gloo").run(CASE, "gloo", world, "locally", "fp64", plan, {})


@pytest.mark.parametrize("model", ["convnet", "text"])
def test_micro_batches(pools: Any, model: str) -> None:
    pools("gloo").run(CASE, "gloo", 2, model, "fp64", "pipeline:2,microbatches=3", {})


# Adam makes noise of what has no gradient, as a bias before a batch norm.
@pytest.mark.parametrize(
    ("model", "optimizer"),
    [("alexnet", "momentum"), ("convnet", "adam"), pytest.param("lstm", "adam", marks=pytest.mark.long)],
)
@pytest.mark.parametrize(
    ("first", "then"), [("tensor:4", "pipeline:2,data:2"), ("random:3", "data:4"), ("owt:4", "random:5")]
)
def test_another_plan_goes_on(pools: Any, first: str, then: str, model: str, optimizer: str) -> None:
    pools("gloo").run("numerics.split_cases:goes_on", "gloo", 4, model, optimizer, first, then)


@pytest.mark.parametrize(
    ("model", "plan"),
    [("transformer", "tensor:4"), ("transformer", "random:2"), ("convnet", "data:2,tensor:2"), ("convnet", "random:2")],
)
def test_copies_agree(pools: Any, model: str, plan: str) -> None:
    pools("gloo").run("numerics.split_cases:copies_agree", "gloo", 4, model, plan)
