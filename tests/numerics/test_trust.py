"""LARS and LAMB go by the norms of whole tensors, whatever part of each a rank has."""

from typing import Any

import pytest

RATES = {"lars": 5.0, "lamb": 0.01}
DATA, SPLIT = "numerics.cases:same_as_one_device", "numerics.split_cases:same_as_one_device"
PRECISIONS = ["fp32", pytest.param("fp64", marks=pytest.mark.long)]
GOES_ON = "numerics.split_cases:goes_on"


def changes(optimizer: str) -> dict[str, object]:
    return {"optim.name": optimizer, "optim.lr": RATES[optimizer], "optim.weight_decay": 0.01}


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(
    ("backend", "world", "options"),
    [
        ("gloo", 2, ""),
        ("shm", 2, ""),
        ("shm", 3, ""),
        ("gloo", 2, ",shard=optimizer"),
        ("gloo", 3, ",shard=full"),
        pytest.param("mpi", 2, "", marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize("optimizer", RATES)
def test_by_sample(pools: Any, optimizer: str, backend: str, world: int, options: str, precision: str) -> None:
    pools(backend).run(DATA, backend, world, "convnet", f"precision={precision}{options}", changes(optimizer))


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(("plan", "world"), [("tensor:2", 2), ("pipeline:2", 2), ("owt:3", 3), ("data:2,tensor:2", 4)])
@pytest.mark.parametrize("optimizer", RATES)
def test_layers_in_parts(pools: Any, optimizer: str, plan: str, world: int, precision: str) -> None:
    pools("gloo").run(SPLIT, "gloo", world, "convnet", precision, plan, changes(optimizer))


@pytest.mark.parametrize("plan", ["tensor:2", "random:3"])
@pytest.mark.parametrize("optimizer", RATES)
@pytest.mark.long
def test_gates_and_heads(pools: Any, optimizer: str, plan: str) -> None:
    """Weights whose parts are blocks of each gate or of some heads."""
    for model in ("text", "transformer"):
        pools("shm").run(SPLIT, "shm", 2, model, "fp64", plan, changes(optimizer))


@pytest.mark.long
@pytest.mark.parametrize(
    ("backend", "first", "then"),
    [("gloo", "tensor:4", "data:4"), ("shm", "data:4", "owt:4"), ("shm", "tensor:4", "data:4")],
)
@pytest.mark.parametrize("optimizer", RATES)
def test_another_plan_goes_on(pools: Any, optimizer: str, backend: str, first: str, then: str) -> None:
    pools(backend).run(GOES_ON, backend, 4, "convnet", optimizer, first, then)


@pytest.mark.parametrize("optimizer", RATES)
def test_clipping_and_accumulation(pools: Any, optimizer: str) -> None:
    more = {**changes(optimizer), "train.clip": 0.1, "train.accumulate": 3}
    pools("shm").run(DATA, "shm", 3, "convnet", "precision=fp64", more)
