"""Every way to split the layers of a model trains what one device trains."""

from typing import Any

import pytest

from numerics.cases import MODELS

CASE = "numerics.split_cases:same_as_one_device"
PRESETS = {"tensor:2": 2, "tensor:3": 3, "owt:2": 2, "owt:4": 4, "pipeline:2": 2, "pipeline:3": 3, "data:2,tensor:2": 4}
LONG = {"tensor:4": 4, "owt:3": 3, "pipeline:4": 4, "data:2,pipeline:2": 4, "tensor:2,pipeline:2": 4}
SHORT = 5  # random plans of each model; 50 in `make test-long`


@pytest.mark.parametrize(
    ("plan", "world"), [*PRESETS.items(), *(pytest.param(*each, marks=pytest.mark.long) for each in LONG.items())]
)
@pytest.mark.parametrize("model", MODELS)
def test_presets(pools: Any, model: str, plan: str, world: int) -> None:
    pools("gloo").run(CASE, "gloo", world, model, "fp64", plan, {})


@pytest.mark.parametrize("backend", ["shm", "mpi"])
@pytest.mark.parametrize("plan", ["tensor:2", "random:7"])
@pytest.mark.parametrize("model", ["alexnet", "transformer"])
def test_other_backends(pools: Any, model: str, plan: str, backend: str) -> None:
    pools(backend).run(CASE, backend, 2, model, "fp64", plan, {})


@pytest.mark.parametrize("model", MODELS)
def test_single_precision(pools: Any, model: str) -> None:
    pools("gloo").run(CASE, "gloo", 4, model, "fp32", "data:2,tensor:2", {})


@pytest.mark.parametrize(
    "seed", [*range(SHORT), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(SHORT, 50))]
)
@pytest.mark.parametrize("model", MODELS)
def test_random_plans(pools: Any, model: str, seed: int) -> None:
    pools("gloo").run(CASE, "gloo", 4, model, "fp64", f"random:{seed}", {})


@pytest.mark.parametrize("model", ["convnet", "text"])
def test_micro_batches(pools: Any, model: str) -> None:
    pools("gloo").run(CASE, "gloo", 2, model, "fp64", "pipeline:2,microbatches=3", {})


# Adam makes noise of what has no gradient, as a bias before a batch norm.
@pytest.mark.parametrize(("model", "optimizer"), [("alexnet", "momentum"), ("convnet", "adam")])
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
