"""Ranks under mpirun; that they keep the contract is in test_contract.py."""

import mmap
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from manyhands.comm.backends import mpich_memory
from manyhands.comm.launch import mpirun as mpirun_launcher

pytest.importorskip("mpi4py", reason="mpi4py is not installed: pip install mpi4py mpich")
MPIRUN = shutil.which("mpirun", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
pytestmark = pytest.mark.skipif(MPIRUN is None, reason="there is no mpirun: pip install mpich")


def mpirun(world: int, *command: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    whole = [str(MPIRUN), "-n", str(world), sys.executable, *command]
    return subprocess.run(whole, capture_output=True, text=True, check=False, timeout=120, env=environment)


def test_a_rank_that_fails_ends_the_others() -> None:
    code = (
        "from manyhands.comm.rendezvous import join; from manyhands.comm.ranks.rank_info import place;"
        "import torch.distributed as dist; here = place();"
        "join(here, 'mpi', timeout=60); 1 / here.rank; dist.barrier()"
    )
    done = mpirun(2, "-c", code)
    assert done.returncode != 0
    assert "ZeroDivisionError" in done.stderr


def test_memory_of_ranks_that_were_killed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that is killed between making its shared memory and taking the name away leaves it, mapped by nobody."""
    for each in (mpirun_launcher, mpich_memory):  # a name of its own: another launch would clear away the real one
        monkeypatch.setattr(each, "SHARED", f"/dev/shm/mpich-test-{os.getpid()}_")
    kept, left = (Path(f"{mpich_memory.SHARED}test_{os.getpid()}_{number}") for number in range(2))
    try:
        for each in (kept, left):
            each.write_bytes(bytes(4096))
        with kept.open("r+b") as file, mmap.mmap(file.fileno(), 4096):
            found = mpirun_launcher.abandoned_memory()
        assert left in found
        assert kept not in found
    finally:
        for each in (kept, left):
            each.unlink(missing_ok=True)


ALONE = """
from manyhands.comm.backends.mpich_memory import memory_of
from manyhands.comm.ranks.rank_info import Place; from manyhands.comm.rendezvous import join
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
