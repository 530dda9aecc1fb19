"""Memory limit: a limit for a process that may ask for too much, so that it fails and the machine does not."""

import resource
from contextlib import suppress
from pathlib import Path

import psutil

from manyhands.machine.detect import CGROUP, memory_limit

SHARE = 0.9  # of what is free; the rest is for everybody else
FIRST_TO_GO = "1000"  # should the kernel have to kill somebody all the same


def guard(processes: int = 1) -> None:
    """Let this process, one of several alike, have its share of what is free now, and no more."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(FIRST_TO_GO)
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = _taken() + int(SHARE * free_bytes() / processes)
    if soft == resource.RLIM_INFINITY or wanted < soft:
        resource.setrlimit(resource.RLIMIT_DATA, (wanted, hard))


def free_bytes(root: Path = CGROUP) -> int:
    """What the machine, and the container, can still give; cached files give way."""
    free = int(psutil.virtual_memory().available)
    try:
        stat = dict(line.split() for line in (root / "memory.stat").read_text().splitlines())
        used = int((root / "memory.current").read_text()) - int(stat["inactive_file"])
    except (OSError, ValueError, KeyError):
        return free
    return max(min(free, memory_limit(root) - used), 0)


def _taken() -> int:
    """What counts against the limit already."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmData"))
