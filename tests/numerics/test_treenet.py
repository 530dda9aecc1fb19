"""Branches of a TreeNet on ranks of their own train what one device trains."""

from typing import Any

import pytest


@pytest.mark.parametrize("precision", ["fp32", "fp64"])
@pytest.mark.parametrize("world", [2, 3])
def test_branches_on_ranks_of_their_own(pools: Any, world: int, precision: str) -> None:
    pools("gloo").run("numerics.treenet_cases:branches_apart", "gloo", world, precision)
