"""Data parallelism over real ranks gives the parameters of one device, on every backend."""

from typing import Any

import pytest

from numerics.cases import LIMIT, MODELS, apart

CASE = "numerics.cases:same_as_one_device"
# `make test` takes some of them, `make test-long` all.
SHORT = {("gloo", 3), ("shm", 2), ("shm", 4), ("mpi", 2)}
GROUPS = [
    pytest.param(backend, world, marks=() if (backend, world) in SHORT else pytest.mark.long)
    for backend in ("gloo", "shm", "mpi")
    for world in (1, 2, 3, 4)
]


@pytest.mark.parametrize(("backend", "world"), GROUPS)
@pytest.mark.parametrize("precision", ["fp32", "fp64"])
@pytest.mark.parametrize("model", MODELS)
def test_parameters(pools: Any, model: str, precision: str, backend: str, world: int) -> None:
    pools(backend).run(CASE, backend, world, model, f"precision={precision}", {})


def test_the_usual_ddp(pools: Any) -> None:
    """The reference `ddp:N` trains the same; without batch norm, which it leaves to each rank."""
    pools("gloo").run(CASE, "gloo", 3, "convnet", "precision=fp64", {}, "ddp")


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("shard", ["optimizer", "full"])
@pytest.mark.parametrize("model", ["alexnet", "text"])
def test_sharded(pools: Any, model: str, shard: str, world: int) -> None:
    changes = {"optim.name": "momentum", "train.clip": 0.5}
    pools("gloo").run(CASE, "gloo", world, model, f"precision=fp64,shard={shard}", changes)


@pytest.mark.parametrize("backend", ["gloo", "shm"])
@pytest.mark.parametrize("changes", [{"train.accumulate": 3}, {"train.clip": 0.1, "optim.name": "adam"}], ids=str)
def test_accumulation_and_clipping(pools: Any, backend: str, changes: dict[str, object]) -> None:
    pools(backend).run(CASE, backend, 3, "convnet", "precision=fp64", changes)


@pytest.mark.parametrize("model", MODELS)
def test_the_trainings_are_well_posed(model: str) -> None:
    """One device comes to the same in both precisions: in none of these trainings does rounding decide a tie (of a
    max-pool, of a ReLU), after which no two ways of adding up would agree. And the measure sees a real difference."""
    assert apart(model, ("fp64", 0.05), ("fp32", 0.05)) < LIMIT["fp32"]
    assert apart(model, ("fp64", 0.05), ("fp64", 0.0501)) > LIMIT["fp32"]
