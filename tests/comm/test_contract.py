"""One contract for every backend: gloo, which torch brings, and ours."""

from typing import Any

import pytest

from comm import cases

NAMES = [case.__name__ for case in cases.CONTRACT]


@pytest.mark.parametrize("world", [1, 2, 3, 4])
@pytest.mark.parametrize("backend", ["gloo", "shm", "mpi"])
@pytest.mark.parametrize("case", NAMES)
def test_contract(pools: Any, case: str, backend: str, world: int) -> None:
    if backend == "gloo" and case in cases.GAPS_OF_GLOO:
        pytest.skip(f"gloo has {cases.GAPS_OF_GLOO[case]}")
    pools(backend).run(f"comm.cases:{case}", backend, world)
