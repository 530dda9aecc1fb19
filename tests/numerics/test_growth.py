"""Batches that grow are the same for any number of ranks."""

from typing import Any

import pytest

CASE = "numerics.cases:same_as_one_device"
SPLIT = "numerics.split_cases:same_as_one_device"
GROWS = {"train.epochs": 2, "train.grow": "0.5:2", "optim.name": "momentum"}


@pytest.mark.parametrize(("backend", "world"), [("gloo", 2), ("shm", 3)])
def test_by_sample(pools: Any, backend: str, world: int) -> None:
    pools(backend).run(CASE, backend, world, "convnet", "precision=fp64", GROWS)


def test_stages(pools: Any) -> None:
    pools("gloo").run(SPLIT, "gloo", 2, "convnet", "fp64", "pipeline:2,microbatches=3", GROWS)
