"""Compression of gradients between real ranks, over every backend."""

from typing import Any

import pytest
import torch

from comm import compress_cases as cases
from manyhands.comm.comm_hook import Compression, largest
from manyhands.errors import PlanError


@pytest.mark.parametrize(
    ("backend", "world"),
    [("gloo", 2), ("gloo", 3), ("shm", 2), ("shm", 3), pytest.param("mpi", 2, marks=pytest.mark.long)],
)
@pytest.mark.parametrize("case", [case.__name__ for case in cases.ALL])
def test_case(pools: Any, case: str, backend: str, world: int) -> None:
    pools(backend).run(f"comm.compress_cases:{case}", backend, world)


@pytest.mark.parametrize("count", [1, 2_000, 200_000])
@pytest.mark.parametrize("kind", ["normal", "zero", "one value", "few", "columns"])
def test_the_largest_are_found(count: int, kind: str) -> None:
    """However the sizes are spread, and so whether or not the sample misleads."""
    row = torch.randn(200_000, generator=torch.Generator().manual_seed(0))
    if kind == "zero":
        row.zero_()
    elif kind == "one value":
        row = row.sign()
    elif kind == "few":
        row[10:] = 0
    elif kind == "columns":
        row.view(-1, 16)[:, 1:] = 0
    places = largest(row, count)
    assert len(places.unique()) == count
    torch.testing.assert_close(row[places].abs().sort().values, row.abs().sort().values[-count:], rtol=0, atol=0)


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        ("bf15", {}, "did you mean 'bf16'"),
        ("topk", {"share": 0.0}, "share=0.0"),
        ("powersgd", {"rank": 0}, "rank=0"),
    ],
)
def test_what_is_not_allowed_is_said(kind: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(PlanError, match=words):
        Compression(kind, torch.nn.Linear(1, 1), **options)
