"""Rank: what a process does first when it is one of many.

`python -m manyhands.comm.rank module arguments…` runs a module as a rank that ends with its launcher.
"""

import atexit
import ctypes
import gc
import os
import runpy
import select
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from manyhands.errors import InputError, ManyhandsError, MissingPackage, RankLeft, choices

PARENT = "MANYHANDS_PARENT"  # the launcher's process, for ranks that start after it has died
LAUNCHER = "MANYHANDS_LAUNCHER"  # the same, for ranks that another program (mpirun) starts for the launcher
NOTES = "MANYHANDS_NOTES"  # a folder where ranks say who they are, why they failed, and that they have ended
SHOWN = "MANYHANDS_SHOWN"  # set: the first rank speaks to the terminal, the others' errors go to the folder of notes
STORES = "MANYHANDS_STORES"  # a folder of theirs alone where ranks of one host meet
RESTARTS = "TORCHELASTIC_RESTART_COUNT"  # how often all ranks have started again
BACKENDS = ("gloo", "nccl", "shm", "mpi")
PR_SET_PDEATHSIG = 1

# The variables by which each launcher tells a process its place: rank, ranks, rank on this host, ranks on this host.
TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
OTHERS = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"),
)
# MPICH's launcher for one host tells no place on the host: it is the rank.
GFORKER = ("PMI_RANK", "PMI_SIZE", "PMI_RANK", "PMI_SIZE")


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
    own = [GFORKER] if os.environ.get(LAUNCHER) else []
    for names in (TORCHRUN, *OTHERS, *own):
        # "2(x3),1" is how Slurm writes tasks per node; the first is right wherever hosts are alike.
        values = [os.environ.get(name, "").split("(")[0].split(",")[0] for name in names]
        if not all(value.isdigit() for value in values):
            continue
        rank, world, local_rank, local_world = (int(value) for value in values)
        if world == 1 and names != TORCHRUN:
            return None  # an interactive job of one task, which may launch ranks itself
        return Place(rank, local_rank, world, local_world, int(os.environ.get(RESTARTS, "0")))
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
    limit = timedelta(seconds=timeout)
    if "MASTER_ADDR" in os.environ and not os.environ.get(STORES):
        from manyhands.comm import many_hosts

        store = many_hosts.store(place, limit)
    else:
        if place.local_world != place.world:
            raise InputError(f"MASTER_ADDR is not set: {place.world} ranks on several hosts need the one of rank 0")
        from manyhands.comm.one_host import file_store

        store = file_store(place.restarts, place.world, limit)
    if backend == "mpi":
        from manyhands.comm import mpi

        mpi.register()
        mpi.check_world(place.world)
    if backend == "shm":
        from manyhands.comm import shm

        shm.register()
    if backend == "nccl" and not dist.is_nccl_available():
        raise MissingPackage("backend 'nccl' needs a build of PyTorch for CUDA")
    name = mpi.TORCH_NAME if backend == "mpi" else backend
    try:
        dist.init_process_group(name, store=store, rank=place.rank, world_size=place.world, timeout=limit)
    except RuntimeError as error:
        from manyhands.comm import late  # which imports torch

        if not late.is_timeout(error):
            raise
        raise late.waited(store, place.rank, place.world, "init_process_group", timeout) from error
    if backend == "mpi":
        mpi.abort_on_error()


def leave() -> None:
    """Say that this rank has ended; take the group down where there is one, and with it its threads.

    One that has yet to let go of a tensor when Python ends aborts the process (gloo, in 1 of 15 short scripts).
    Models hold the group too, in cycles.
    """
    _note("ended", "")  # first: whoever waits for this rank must not think that it was lost
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


def die_with(process: int) -> None:
    """End this process when another one does, of which it is no child."""
    if not sys.platform.startswith("linux"):
        return
    try:
        end = os.pidfd_open(process)
    except ProcessLookupError:
        os.kill(os.getpid(), signal.SIGKILL)

    def watch() -> None:
        select.select([end], [], [])
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="launcher", daemon=True).start()


def ended(world: int) -> list[int]:
    """Which ranks, of a group of all, have come to the end of their script; of a smaller group nobody can tell."""
    folder, here = os.environ.get(NOTES), place()
    if not folder or here is None or here.world != world:
        return []
    return sorted(int(path.stem) for path in Path(folder).glob("*.ended"))


def left(gone: Sequence[int], rank: int, what: str) -> RankLeft:
    """The error of a rank that waits for some that will not come any more."""
    return RankLeft(f"{names(gone)} {'has' if len(gone) == 1 else 'have'} ended while rank {rank} waits in {what}")


def names(ranks: Sequence[int]) -> str:
    return ", ".join(f"rank {rank}" for rank in ranks)


def _note(kind: str, text: str) -> None:
    if (folder := os.environ.get(NOTES)) and (here := place()):
        Path(folder, f"{here.rank}.{kind}").write_text(text)


def _about(error: Exception) -> str:
    """One line; our own errors need no name."""
    name, lines, here = type(error).__name__, str(error).strip().splitlines(), place()
    if "by peer" in str(error) and here and (gone := ended(here.world)):  # as gloo tells that a rank closed its end
        return str(left(gone, here.rank, "a collective"))
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
    if launcher := os.environ.get(LAUNCHER):
        die_with(int(launcher))
    _hush()
    _note("process", str(os.getpid()))
    del sys.argv[0]
    try:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        _note("done", "")
    except SystemExit as end:
        if end.code and isinstance(end.code, int):
            _fail(end.code, f"exit code {end.code}")
        elif not end.code:
            _note("done", "")
        else:  # as Python has it: anything else is what to say
            print(end.code, file=sys.stderr)
            _fail(1, str(end.code))
    except Exception as error:
        traceback.print_exc()
        _fail(1, _about(error))


def _fail(code: int, why: str) -> None:
    _note("error", why)
    end_now(code)


def done() -> None:
    """End a rank of ours that has finished, when all that was to happen at the end has.

    What of a group still lives when Python takes itself down may abort the process (see `leave`), which then counts as
    killed. MPI takes itself down after all that, and its launcher waits for it.
    """
    _note("done", "")
    if "mpi4py.MPI" in sys.modules:
        return
    atexit._run_exitfuncs()
    end_now(0)


def end_now(code: int) -> None:
    """End a rank that has failed: taking a group down while others wait in it aborts, or hangs, and hides the error."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code & 0xFF)


if __name__ == "__main__":
    main()
