"""Rank info: what a process does first when it is one of many.

`python -m manyhands.comm.launch.bootstrap module arguments…` runs a module as a rank that ends with its launcher.
"""

import os
from dataclasses import dataclass

PARENT = "MANYHANDS_PARENT"  # the launcher's process, for ranks that start after it has died
LAUNCHER = "MANYHANDS_LAUNCHER"  # the same, for ranks that another program (mpirun) starts for the launcher
SHOWN = "MANYHANDS_SHOWN"  # set: the first rank speaks to the terminal, the others' errors go to the folder of notes
STORES = "MANYHANDS_STORES"  # a folder of theirs alone where ranks of one host meet
RESTARTS = "TORCHELASTIC_RESTART_COUNT"  # how often all ranks have started again

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


def is_leader() -> bool:
    """Whether this process speaks for the ranks among which another launcher has started it."""
    here = place()
    return here is None or here.rank == 0
