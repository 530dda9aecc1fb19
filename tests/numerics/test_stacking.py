"""Blocks that learn in turn, over ranks, train what one device trains."""

from typing import Any

import pytest


@pytest.mark.parametrize("optimizer", ["adam", pytest.param("momentum", marks=pytest.mark.long)])
@pytest.mark.parametrize(
    ("how", "world"), [("pipeline:2", 2), ("tensor:2", 2), ("tensor:3", 3), ("data:2,tensor:2", 4), ("pipeline:3", 3)]
)
def test_block_by_block(pools: Any, how: str, world: int, optimizer: str) -> None:
    pools("gloo").run("numerics.stacking_cases:block_by_block", "gloo", world, how, optimizer)
