"""Ranks under mpirun; that they keep the contract is in test_contract.py."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mpi4py", reason="mpi4py is not installed: pip install mpi4py mpich")
MPIRUN = shutil.which("mpirun", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
pytestmark = pytest.mark.skipif(MPIRUN is None, reason="there is no mpirun: pip install mpich")


def mpirun(world: int, *command: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    whole = [str(MPIRUN), "-n", str(world), sys.executable, *command]
    return subprocess.run(whole, capture_output=True, text=True, check=False, timeout=120, env=environment)


def test_a_rank_that_fails_ends_the_others() -> None:
    code = (
        "from manyhands.comm.rank import join, place; import torch.distributed as dist; here = place();"
        "join(here, 'mpi', timeout=60); 1 / here.rank; dist.barrier()"
    )
    before = set(Path("/dev/shm").glob("mpich_shm_*"))
    done = mpirun(2, "-c", code)
    for left in set(Path("/dev/shm").glob("mpich_shm_*")) - before:  # an abort makes MPICH leave its memory behind
        left.unlink()
    assert done.returncode != 0
    assert "ZeroDivisionError" in done.stderr
