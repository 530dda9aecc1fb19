"""MPICH memory: the names of the shared memory that MPICH leaves behind after a kill."""

from pathlib import Path

SHARED = "/dev/shm/mpich_shm_"


def memory_of(process: str) -> list[Path]:
    """MPICH's shared memory that a process has mapped and that still has a name."""
    try:
        maps = Path("/proc", process, "maps").read_text().splitlines()
    except OSError:  # it has ended, or this is no Linux
        return []
    found = {line[line.index(SHARED) :] for line in maps if SHARED in line}
    return [Path(name) for name in found if not name.endswith(" (deleted)")]


def forget_names() -> None:
    for each in memory_of("self"):
        each.unlink(missing_ok=True)
