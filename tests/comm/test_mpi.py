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
    done = mpirun(2, "-c", code)
    assert done.returncode != 0
    assert "ZeroDivisionError" in done.stderr


ALONE = """
from manyhands.comm.mpirun import memory_of
from manyhands.comm.rank import Place, join
from manyhands.errors import InputError

try:
    join(Place(0, 0, 2, 2), "mpi")
except InputError as error:
    print(error, memory_of("self"))
"""


def test_a_rank_that_mpirun_has_not_started_is_refused_and_leaves_no_memory() -> None:
    """MPICH gives it a world of its own, and shared memory with a name."""
    done = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, check=True)
    assert done.stdout == (
        "backend=mpi needs mpirun: MPI knows 1 of 2 ranks here; start them by mpirun -n 2, or say backend=gloo []\n"
    )
