"""Rank: what a process does first when it is one of many.

`python -m manyhands.comm.rank module arguments…` runs a module as a rank that ends with its launcher.
"""

import ctypes
import gc
import os
import runpy
import signal
import sys
import traceback
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from manyhands.errors import InputError, ManyhandsError, MissingPackage, choices

PARENT = "MANYHANDS_PARENT"  # the launcher's process, for ranks that start after it has died
NOTES = "MANYHANDS_NOTES"  # a folder where ranks say who they are and why they failed, if the launcher has none
SHOWN = "MANYHANDS_SHOWN"  # set: the first rank speaks to the terminal, the others' errors go to the folder of notes
BACKENDS = ("gloo", "nccl", "shm", "mpi")
PR_SET_PDEATHSIG = 1

# The variables by which each launcher tells a process its place: rank, ranks, rank on this host, ranks on this host.
TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
OTHERS = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"),
)


@dataclass(frozen=True)
class Place:
    """Which of how many ranks a process is."""

    rank: int
    local_rank: int
    world: int
    local_world: int
    restarts: int = 0


def place() -> Place | None:
    """What torchrun, our launcher, mpirun or srun says; None when the process is alone."""
    for names in (TORCHRUN, *OTHERS):
        # "2(x3),1" is how Slurm writes tasks per node; the first is right wherever hosts are alike.
        values = [os.environ.get(name, "").split("(")[0].split(",")[0] for name in names]
        if not all(value.isdigit() for value in values):
            continue
        rank, world, local_rank, local_world = (int(value) for value in values)
        if world == 1 and names != TORCHRUN:
            return None  # an interactive job of one task, which may launch ranks itself
        return Place(rank, local_rank, world, local_world, int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")))
    return None


def is_pinned() -> bool:
    """Whether who started this process has given it cores of its own: fewer than it has itself."""
    try:
        return os.sched_getaffinity(0) < os.sched_getaffinity(os.getppid())
    except OSError:  # no parent that we may look at
        return False


def join(place: Place, backend: str = "gloo", timeout: float = 300.0) -> None:
    """Meet the other ranks; from here on torch.distributed works. `timeout`, in seconds, holds for every collective."""
    if backend not in BACKENDS:
        raise InputError(f"backend '{backend}' is not known: {choices(backend, BACKENDS)}")
    import torch.distributed as dist

    if dist.is_initialized():
        return
    if "MASTER_ADDR" not in os.environ:
        if place.local_world != place.world:
            raise InputError(f"MASTER_ADDR is not set: {place.world} ranks on several hosts need the one of rank 0")
        os.environ["MASTER_ADDR"] = "127.0.0.1"
        # The ranks of one host are children of one process: its number gives them a port without a word.
        os.environ.setdefault("MASTER_PORT", str(20000 + os.getppid() % 10000))
    limit = timedelta(seconds=timeout)
    if backend == "mpi":
        from manyhands.comm import mpi

        mpi.register()
        dist.init_process_group(mpi.TORCH_NAME, rank=place.rank, world_size=place.world, timeout=limit)
        mpi.abort_on_error()
        return
    if backend == "shm":
        from manyhands.comm import shm

        shm.register()
    if backend == "nccl" and not dist.is_nccl_available():
        raise MissingPackage("backend 'nccl' needs a build of PyTorch for CUDA")
    dist.init_process_group(backend, rank=place.rank, world_size=place.world, timeout=limit)


def leave() -> None:
    """Take the group down where there is one, and with it its threads.

    One that has yet to let go of a tensor when Python ends aborts the process (gloo, in 1 of 15 short scripts).
    Models hold the group too, in cycles.
    """
    if "torch" in sys.modules:
        import torch.distributed as dist

        if dist.is_available() and dist.is_initialized():
            gc.collect()
            dist.destroy_process_group()


def die_with_parent() -> None:
    """Have the kernel kill this process when the one that started it ends, however that ends."""
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    parent = os.environ.get(PARENT)
    if parent is not None and os.getppid() != int(parent):
        os.kill(os.getpid(), signal.SIGKILL)


def _note(kind: str, text: str) -> None:
    if (folder := os.environ.get(NOTES)) and (here := place()):
        Path(folder, f"{here.rank}.{kind}").write_text(text)


def _about(error: Exception) -> str:
    """One line; our own errors need no name."""
    name, lines = type(error).__name__, str(error).strip().splitlines()
    if not lines:
        return name
    return lines[0] if isinstance(error, ManyhandsError) else f"{name}: {lines[0]}"


def _hush() -> None:
    """Keep what this rank says from the terminal, unless it is the first."""
    if os.environ.get(SHOWN) and (here := place()) and here.rank > 0:
        kept = os.open(Path(os.environ[NOTES], f"{here.rank}.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(kept, 2)


def main() -> None:
    die_with_parent()
    os.environ.pop(PARENT, None)  # processes that this one starts have another parent
    _hush()
    _note("process", str(os.getpid()))
    del sys.argv[0]
    try:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    except Exception as error:
        _note("error", _about(error))
        # At once: taking a process group down while others wait in it aborts, or hangs, and hides the error.
        traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)


if __name__ == "__main__":
    main()
