"""Local SGD over real ranks: averaged at each step it is synchronous training, else what the formulas give."""

from pathlib import Path
from typing import Any

import pytest

CASES = "numerics.apart_cases"
LONG = pytest.mark.long
# `make test` takes some of them, `make test-long` all.
SHORT = {("fp32", *group) for group in (("gloo", 2), ("shm", 3), ("shm", 4), ("mpi", 2))} | {
    (precision, "gloo", 3) for precision in ("fp32", "fp64")
}
TRAININGS = [
    pytest.param(
        model, precision, optimizer, backend, world, marks=() if (precision, backend, world) in SHORT else LONG
    )
    for model, precision in (("convnet", "fp32"), ("convnet", "fp64"), ("transformer", "fp64"))
    for optimizer in ("sgd", "momentum")
    for backend in ("gloo", "shm", "mpi")
    for world in (2, 3, 4)
]


@pytest.mark.parametrize(("model", "precision", "optimizer", "backend", "world"), TRAININGS)
def test_averaged_at_each_step_it_is_synchronous(
    pools: Any, model: str, precision: str, optimizer: str, backend: str, world: int
) -> None:
    """67 samples in batches of 16: parts are uneven, and of the last batch of 3 a fourth rank has none."""
    changes = {"optim.name": optimizer, "optim.weight_decay": 0.01}
    pools(backend).run(f"{CASES}:like_synchronous", backend, world, model, "local:{world},every=1", precision, changes)


@pytest.mark.parametrize(("backend", "world"), [("gloo", 3), ("shm", 2), ("shm", 4)])
@pytest.mark.parametrize("options", ["every=3", "every=4,after=3", "every=2,average=elastic"])
def test_each_worker_by_hand(pools: Any, options: str, backend: str, world: int) -> None:
    pools(backend).run(f"{CASES}:local_by_hand", backend, world, options)


@pytest.mark.parametrize("backend", ["gloo", "shm"])
@pytest.mark.parametrize("options", ["local:{world},every=3", "local:{world},every=3,average=elastic"])
def test_it_resumes_between_two_averages(pools: Any, tmp_path: Path, options: str, backend: str) -> None:
    pools(backend).run(f"{CASES}:resumes", backend, 2, options, str(tmp_path))


@pytest.mark.parametrize("backend", ["gloo", "shm"])
def test_batch_norm_is_each_rank_s_own(pools: Any, backend: str) -> None:
    pools(backend).run(f"{CASES}:batch_norms", backend, 4, "local:{world},every=2")
