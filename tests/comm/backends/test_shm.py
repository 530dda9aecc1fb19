"""What shm does beyond the contract: in place, freed, beside gloo, and a clear word about who is late."""

from typing import Any

import pytest


@pytest.mark.parametrize("world", [1, 2, 4])
@pytest.mark.parametrize("case", ["shared", "one_common_tensor", "memory_is_freed"])
def test_in_place(pools: Any, case: str, world: int) -> None:
    pools("shm").run(f"comm.cases:{case}", "shm", world)


def test_beside_gloo(pools: Any) -> None:
    pools("gloo").run("comm.cases:beside_gloo", "gloo", 2)


@pytest.mark.parametrize("world", [2, 3])
def test_a_rank_that_hangs_is_named(pools: Any, world: int) -> None:
    pools("shm").run("comm.cases:hang", "shm", world)


def test_wrong_sizes(pools: Any) -> None:
    pools("shm").run("comm.cases:wrong_sizes", "shm", 3)
