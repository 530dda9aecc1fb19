"""One contract for every backend: gloo, which torch brings, and ours."""

from typing import Any

import pytest

from comm import cases

NAMES = [case.__name__ for case in cases.CONTRACT]
# `make test` takes these, `make test-long` all.
SHORT = {("gloo", 2), ("gloo", 3), ("shm", 1), ("shm", 2), ("shm", 3), ("shm", 4), ("mpi", 2)}
GROUPS = [
    pytest.param(backend, world, marks=() if (backend, world) in SHORT else pytest.mark.long)
    for backend in ("gloo", "shm", "mpi")
    for world in (1, 2, 3, 4)
]


@pytest.mark.parametrize(("backend", "world"), GROUPS)
@pytest.mark.parametrize("case", NAMES)
def test_contract(pools: Any, case: str, backend: str, world: int) -> None:
    if backend == "gloo" and case in cases.GAPS_OF_GLOO:
        pytest.skip(f"gloo has {cases.GAPS_OF_GLOO[case]}")
    pools(backend).run(f"comm.cases:{case}", backend, world)
