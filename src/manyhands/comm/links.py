"""Links: how long messages take between ranks of this host (`python -m manyhands.comm.links_rank` is one of them)."""

import json
import platform
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from manyhands.comm.launch import elastic, mpirun
from manyhands.errors import MissingPackage
from manyhands.files import TemporaryFolder
from manyhands.machine.link import Link, fit
from manyhands.machine.machine import Machine
from manyhands.progress import say

LARGEST = 2**26  # bytes
SECONDS = 0.1  # of each size, all sweeps together
LIMIT = 300.0  # seconds of all: an MPI that does not fit mpi4py may wait for ever

Act = Callable[[], object]


def backends(machine: Machine) -> list[str]:
    """Those that can be measured here; says which are left out for want of a package."""
    found = ["gloo"]
    if sys.platform.startswith("linux") and platform.machine() in ("x86_64", "AMD64"):
        found.append("shm")
    try:
        mpirun.find()
        found.append("mpi")
    except MissingPackage as error:
        say(f"mpi is left out: {error}")
    return [*found, "nccl"] if len(machine.gpus) > 1 else found


def links(
    backend: str,
    world: int,
    cores: Sequence[int],
    *,
    largest: int = LARGEST,
    seconds: float = SECONDS,
    usual: bool = False,
) -> list[Link]:
    """Start ranks that share out the cores, as a training's ranks do, and measure between them.

    The best that a link can do, or what it usually does between steps of work: threads that have slept while their
    rank computed take their time to wake, and small messages then several times as long as at best.
    """
    with TemporaryFolder() as folder:
        out = Path(folder) / "points.json"
        statistic = "usual" if usual else "best"
        arguments = [backend, str(out), ",".join(map(str, cores)), str(largest), str(seconds), statistic]
        if backend == "mpi":
            mpirun.ranks("manyhands.comm.links_rank", arguments, world, limit=LIMIT)
        else:
            elastic.ranks("manyhands.comm.links_rank", arguments, world)
        measured = json.loads(out.read_text())
    return [_link(backend, operation, world, points) for operation, points in measured.items()]


def _link(backend: str, operation: str, world: int, pairs: Sequence[Sequence[Any]]) -> Link:
    points = tuple((int(size), float(taken)) for size, taken in pairs)
    latency, bandwidth = fit(points)
    return Link(backend, operation, world, latency, bandwidth, points)


def sizes(largest: int, every: int = 1) -> list[int]:
    """4 bytes, and four times as many each time; or only some of them."""
    return [4**power for power in range(1, 32, every) if 4**power <= largest]
