"""Stale-synchronous training over real ranks: without staleness synchronous to the bit, with it never further apart."""

from pathlib import Path
from typing import Any

import pytest

CASES = "numerics.apart_cases"
SHORT = {("gloo", 2), ("gloo", 3), ("shm", 2), ("shm", 4), ("mpi", 2)}
GROUPS = [
    pytest.param(backend, world, marks=() if (backend, world) in SHORT else pytest.mark.long)
    for backend in ("gloo", "shm", "mpi")
    for world in (1, 2, 3, 4)
]


@pytest.mark.parametrize(("backend", "world"), GROUPS)
def test_without_staleness_it_is_blocking_to_the_bit(pools: Any, backend: str, world: int) -> None:
    pools(backend).run(f"{CASES}:stale_is_blocking", backend, world)


@pytest.mark.parametrize(("backend", "world"), GROUPS)
@pytest.mark.parametrize("model", ["convnet", pytest.param("alexnet", marks=pytest.mark.long)])
def test_without_staleness_it_is_synchronous(pools: Any, model: str, backend: str, world: int) -> None:
    changes = {"optim.name": "momentum", "train.clip": 0.5, "train.accumulate": 2}
    words = "data:{world},consistency=stale,staleness=0"
    pools(backend).run(f"{CASES}:like_synchronous", backend, world, model, words, "fp64", changes)


def test_without_staleness_batch_norm_spans_the_ranks(pools: Any) -> None:
    words = "data:{world},consistency=stale,staleness=0"
    pools("shm").run(f"{CASES}:like_synchronous", "shm", 3, "alexnet", words, "fp64", {})


@pytest.mark.parametrize("most", [1, 3])
def test_late_gradients_by_hand(pools: Any, most: int) -> None:
    pools("gloo").run(f"{CASES}:stale_by_hand", "gloo", 1, most)


@pytest.mark.parametrize(("backend", "world"), GROUPS)
@pytest.mark.parametrize("most", [1, 4])
def test_nobody_is_further_ahead(pools: Any, most: int, backend: str, world: int) -> None:
    if world == 1:
        pytest.skip("there is nobody to be ahead of")
    pools(backend).run("numerics.bound_cases:bound", backend, world, most, 12)


@pytest.mark.parametrize("backend", ["gloo", "shm"])
def test_it_resumes(pools: Any, tmp_path: Path, backend: str) -> None:
    words = "data:{world},consistency=stale,staleness=0"
    pools(backend).run(f"{CASES}:resumes", backend, 2, words, str(tmp_path))


@pytest.mark.parametrize("backend", ["gloo", "shm"])
def test_batch_norm_is_each_rank_s_own(pools: Any, backend: str) -> None:
    pools(backend).run(f"{CASES}:batch_norms", backend, 4, "data:{world},consistency=stale,staleness=2")
