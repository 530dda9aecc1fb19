"""Machine probe: this machine, with what its devices and the links between its ranks were measured to do."""

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import psutil

from manyhands.comm import links as measure
from manyhands.comm.launch.fresh_process import in_fresh_process
from manyhands.comm.ranks.rank_info import place
from manyhands.errors import InputError, RankError, RunError
from manyhands.files import TemporaryFolder
from manyhands.machine.detect import detect
from manyhands.machine.link import Link
from manyhands.machine.machine import Machine
from manyhands.machine.probe import SECONDS
from manyhands.machine.throughput import Rate
from manyhands.progress import bar, say

BUSY = 10.0  # percent


def probe(most_ranks: int | None = None, *, seconds: float = SECONDS, largest: int = measure.LARGEST) -> Machine:
    """Measure, each time in fresh processes: `seconds` for a rate, messages of up to `largest` bytes."""
    if place() is not None:
        raise InputError("probe starts its own ranks: call manyhands without torchrun, mpirun or srun")
    machine = detect()
    _warn_if_busy()
    cores = machine.separate_cores
    settings = [("cpu", cores[:threads]) for threads in doublings(1, len(cores))]
    settings += [("cuda", cores)] if machine.gpus else []
    worlds = [
        (backend, world)
        for backend in measure.backends(machine)
        for world in doublings(2, min(len(machine.gpus if backend == "nccl" else cores), most_ranks or sys.maxsize))
    ]
    rates: list[Rate] = []
    links: list[Link] = []
    with bar("measuring", len(settings) + len(worlds), "settings") as shown:
        for device, each in settings:
            rates += _rates(device, each, seconds)
            shown.advance(1, f"{device}, {len(each)} threads")
        for backend, world in worlds:
            links += _links(backend, world, cores, largest, seconds)
            shown.advance(1, f"{backend}, {world} ranks")
    return replace(machine, rates=tuple(rates), links=tuple(links))


def _warn_if_busy() -> None:
    busy = psutil.cpu_percent(0.5)
    if busy > BUSY:
        say(f"other programs keep the processor {busy:.0f} % busy: all will look slower than it is, probe again later")


def doublings(first: int, last: int) -> list[int]:
    """`first`, twice that and so on, and `last` itself.

    >>> doublings(2, 12)
    [2, 4, 8, 12]
    """
    below = [first << power for power in range(32) if first << power < last]
    return [*below, last] if last >= first else []


def _rates(device: str, cores: Sequence[int], seconds: float) -> list[Rate]:
    """In a process of its own: threads stay on the cores on which they began."""
    with TemporaryFolder() as folder:
        out = Path(folder) / "rates.json"
        arguments = [device, str(out), ",".join(map(str, cores)), str(seconds)]
        code, errors = in_fresh_process("manyhands.machine.probe", *arguments)
        if code != 0:
            last = (errors.strip().splitlines() or [f"exit code {code}"])[-1]
            raise RunError(f"the rates of {device} with {len(cores)} threads cannot be measured: {last}")
        rates = [Rate(**each) for each in json.loads(out.read_text())]
    if not rates:
        say(f"{device} is left out: this build of PyTorch cannot use it")
    return rates


def _links(backend: str, world: int, cores: Sequence[int], largest: int, seconds: float) -> list[Link]:
    try:
        return measure.links(backend, world, cores, largest=largest, seconds=seconds * measure.SECONDS / SECONDS)
    except RankError as error:  # an MPI that does not work here must not cost the rest
        say(f"{backend} with {world} ranks is left out: {error}")
        return []
