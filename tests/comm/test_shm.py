"""What shm does beyond the contract: in place, freed, beside gloo, and a clear word about who is late."""

from typing import Any

import pytest


@pytest.mark.parametrize("world", [1, 2, 4])
@pytest.mark.parametrize("case", ["shared", "one_common_tensor", "memory_is_freed"])
def test_in_place(pool: Any, case: str, world: int) -> None:
    pool.run(case, "shm", world)


def test_beside_gloo(pool: Any) -> None:
    pool.run("beside_gloo", "gloo", 2)


@pytest.mark.parametrize("world", [2, 3])
def test_a_rank_that_hangs_is_named(pool: Any, world: int) -> None:
    pool.run("hang", "shm", world)


def test_wrong_sizes(pool: Any) -> None:
    pool.run("wrong_sizes", "shm", 3)
