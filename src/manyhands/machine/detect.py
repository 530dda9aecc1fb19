"""Detect the machine from the kernel's own files, without torch and without root."""

import math
import os
import platform
import shutil
import subprocess
from pathlib import Path

import psutil

from manyhands.machine.machine import Core, Gpu, Machine

SYSTEM = Path("/sys/devices/system")
CGROUP = Path("/sys/fs/cgroup")


def detect() -> Machine:
    """This machine, as far as this process may use it."""
    return Machine(
        host=platform.node(),
        cpu=cpu_name(),
        cores=allowed_cores(),
        memory_bytes=memory_limit(),
        gpus=detect_gpus(),
        system=f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
    )


def cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def allowed_cores() -> tuple[Core, ...]:
    """The logical cores of this process's affinity, cut to the container's CPU quota."""
    ids = sorted(os.sched_getaffinity(0))
    quota = cpu_quota()
    if quota is not None:
        ids = ids[: max(1, math.ceil(quota))]
    return tuple(_core(number) for number in ids)


def cpu_quota(root: Path = CGROUP) -> float | None:
    """How many cores' worth of time the container may use, or None when there is no limit."""
    try:
        limit, period = (root / "cpu.max").read_text().split()
        return None if limit == "max" else int(limit) / int(period)
    except (OSError, ValueError):
        return None


def memory_limit(root: Path = CGROUP) -> int:
    """The machine's memory, or the container's limit when that is less."""
    total = int(psutil.virtual_memory().total)
    try:
        return min(total, int((root / "memory.max").read_text()))
    except (OSError, ValueError):  # no such file, or "max"
        return total


def _core(number: int) -> Core:
    folder = SYSTEM / "cpu" / f"cpu{number}"
    nodes = sorted(folder.glob("node[0-9]*"))
    return Core(
        id=number,
        physical=_number(folder / "topology" / "core_id", number),
        socket=_number(folder / "topology" / "physical_package_id", 0),
        node=int(nodes[0].name.removeprefix("node")) if nodes else 0,
    )


def _number(path: Path, otherwise: int) -> int:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return otherwise


def detect_gpus() -> tuple[Gpu, ...]:
    """NVIDIA's GPUs as its own tool lists them; none when the tool is not there."""
    tool, visible = shutil.which("nvidia-smi"), os.environ.get("CUDA_VISIBLE_DEVICES")
    if tool is None or visible in ("", "-1"):
        return ()
    query = [tool, "--query-gpu=index,name,memory.total", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return ()
    rows = [line.split(", ") for line in done.stdout.splitlines() if line.strip()]
    gpus = [Gpu(int(index), name, int(size) * 2**20) for index, name, size in rows if size.strip().isdecimal()]
    chosen = [gpu for gpu in gpus if visible is None or str(gpu.index) in visible.split(",")]
    return tuple(chosen or gpus)  # a variable that names GPUs by their long ids hides none that matters here
