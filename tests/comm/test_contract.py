"""One contract for every backend: gloo, which torch brings, and ours."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

_spec = importlib.util.spec_from_file_location("cases", Path(__file__).with_name("cases.py"))
assert _spec is not None
assert _spec.loader is not None
cases = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(cases)
NAMES = [case.__name__ for case in cases.CONTRACT]


@pytest.mark.parametrize(
    ("backend", "world"), [("gloo", 2), ("gloo", 3), ("shm", 1), ("shm", 2), ("shm", 3), ("shm", 4)]
)
@pytest.mark.parametrize("case", NAMES)
def test_contract(pool: Any, case: str, backend: str, world: int) -> None:
    if backend == "gloo" and case in cases.GAPS_OF_GLOO:
        pytest.skip(f"gloo has {cases.GAPS_OF_GLOO[case]}")
    pool.run(case, backend, world)
