"""Machine TOML: a machine as a file, machine.toml, that a probe writes or a person.

The least that a description needs:

    cpu = "Xeon"
    cores = 16          # or a list of {id, physical, socket, node}, where cores have SMT siblings or several sockets
    memory_gb = 128     # of 2^30 bytes

and what may follow, entries of which there can be many:

    [[gpus]]
    name = "P100"
    memory_gb = 16

    [[rates]]
    device = "cpu"
    operation = "matmul"
    precision = "fp32"
    threads = 16
    gflop_per_s = 1500  # for operation = "copy", which has no precision: gb_per_s, of 10^9 bytes

    [[links]]
    backend = "gloo"
    operation = "all_reduce"
    ranks = 16
    latency_us = 500
    gb_per_s = 0.5      # and, where they were measured, points = [{ bytes = 4, us = 480.0 }, …]
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from manyhands.errors import MachineError
from manyhands.files import read_toml, write_text
from manyhands.machine import link as links
from manyhands.machine import throughput as rates
from manyhands.machine.link import Link, Point
from manyhands.machine.machine import Core, Gpu, Machine
from manyhands.machine.throughput import Rate
from manyhands.machine.toml_fields import Fields

GB = 2**30  # of memory
MOST_CORES = 65536
HEADER = "# A machine for manyhands. memory_gb counts 2^30 bytes, gb_per_s 10^9 bytes, us are microseconds.\n\n"


def read(path: Path) -> Machine:
    """A machine from a TOML file."""
    table = read_toml(path, "machine", MachineError, f"make one with `manyhands probe --out {path}`")
    return _machine(Fields(table, str(path)), path.stem)


def _machine(fields: Fields, name: str) -> Machine:
    machine = Machine(
        host=fields.text("host", name),
        cpu=fields.text("cpu"),
        system=fields.text("system", ""),
        memory_bytes=round(fields.number("memory_gb") * GB),
        cores=_cores(fields),
        gpus=tuple(_gpu(each, index) for index, each in enumerate(fields.entries("gpus"))),
        rates=tuple(map(_rate, fields.entries("rates"))),
        links=tuple(map(_link, fields.entries("links"))),
    )
    fields.finish()
    fields.distinct("cores", [f"id {core.id}" for core in machine.cores])
    fields.distinct("gpus", [f"index {gpu.index}" for gpu in machine.gpus])
    fields.distinct("rates", [f"{r.device} {r.operation} {r.precision}, threads {r.threads}" for r in machine.rates])
    fields.distinct("links", [f"{each.backend} {each.operation}, ranks {each.ranks}" for each in machine.links])
    return machine


def _cores(fields: Fields) -> tuple[Core, ...]:
    if not isinstance(fields.get("cores"), list):
        return _numbered(fields.whole("cores", 1, most=MOST_CORES))
    cores = tuple(map(_core, fields.entries("cores")))
    if not cores:
        raise fields.refuse("cores", [], "a whole number, or a list of at least one core,")
    return cores


def _numbered(count: int) -> tuple[Core, ...]:
    """Cores without SMT, on one socket."""
    return tuple(Core(id=number, physical=number, socket=0, node=0) for number in range(count))


def _core(fields: Fields) -> Core:
    number = fields.whole("id", 0)
    core = Core(
        id=number,
        physical=fields.whole("physical", 0, number),
        socket=fields.whole("socket", 0, 0),
        node=fields.whole("node", 0, 0),
    )
    fields.finish()
    return core


def _gpu(fields: Fields, index: int) -> Gpu:
    gpu = Gpu(fields.whole("index", 0, index), fields.text("name"), round(fields.number("memory_gb") * GB))
    fields.finish()
    return gpu


def _rate(fields: Fields) -> Rate:
    device = fields.choice("device", rates.DEVICES)
    operation = fields.choice("operation", rates.OPERATIONS)
    rate = Rate(
        device=device,
        operation=operation,
        precision="fp32" if operation == "copy" else fields.choice("precision", rates.PRECISIONS),
        threads=fields.whole("threads", 1) if device == "cpu" else 0,
        rate=fields.number(_rate_key(operation)),
    )
    fields.finish()
    return rate


def _rate_key(operation: str) -> str:
    """The unit is part of the name, so that it can be neither forgotten nor mistaken."""
    return "gb_per_s" if operation == "copy" else "gflop_per_s"


def _link(fields: Fields) -> Link:
    link = Link(
        backend=fields.choice("backend", links.BACKENDS),
        operation=fields.choice("operation", links.OPERATIONS),
        ranks=fields.whole("ranks", 2),
        latency_us=fields.number("latency_us", zero=True),
        gb_per_s=fields.number("gb_per_s"),
        points=tuple(sorted(map(_point, fields.entries("points")))),
    )
    fields.finish()
    fields.distinct("points", [f"bytes {size}" for size, _ in link.points])
    return link


def _point(fields: Fields) -> Point:
    point = (fields.whole("bytes", 1), fields.number("us") * 1e-6)
    fields.finish()
    return point


def write(machine: Machine, path: Path) -> None:
    """Write a machine as a TOML file; memory and what was measured are cut to four digits."""
    write_text(path, HEADER + to_toml(machine))


def to_toml(machine: Machine) -> str:
    """The text that `read` takes. Lists of which every entry has a line go before those that have tables."""
    import tomli_w  # here, so that training works where only this small package is missing

    facts: dict[str, Any] = {
        "host": machine.host,
        "cpu": machine.cpu,
        "system": machine.system,
        "memory_gb": _short(machine.memory_bytes / GB),
    }
    cores = [vars(core) for core in machine.cores]
    if machine.cores == _numbered(len(cores)):
        facts["cores"], cores = len(cores), []
    gpus = [{"index": gpu.index, "name": gpu.name, "memory_gb": _short(gpu.memory_bytes / GB)} for gpu in machine.gpus]
    tables = {"gpus": gpus, "links": list(map(_link_table, machine.links))}
    return "".join(
        [
            tomli_w.dumps(facts),
            _lines("cores", cores),
            _lines("rates", list(map(_rate_table, machine.rates))),
            tomli_w.dumps({key: entries for key, entries in tables.items() if entries}),
        ]
    )


def _lines(key: str, entries: Sequence[Mapping[str, str | int | float]]) -> str:
    """A list with an entry a line, however long: so it reads as a table."""
    # Plain words and numbers are written alike in JSON and TOML.
    rows = [", ".join(f"{name} = {json.dumps(value)}" for name, value in entry.items()) for entry in entries]
    return "\n".join([f"{key} = [", *(f"    {{ {row} }}," for row in rows), "]\n\n"]) if rows else ""


def _rate_table(rate: Rate) -> dict[str, Any]:
    return {
        "device": rate.device,
        "operation": rate.operation,
        **({"precision": rate.precision} if rate.operation != "copy" else {}),
        **({"threads": rate.threads} if rate.device == "cpu" else {}),
        _rate_key(rate.operation): _short(rate.rate),
    }


def _link_table(link: Link) -> dict[str, Any]:
    table: dict[str, Any] = {
        "backend": link.backend,
        "operation": link.operation,
        "ranks": link.ranks,
        "latency_us": _short(link.latency_us),
        "gb_per_s": _short(link.gb_per_s),
    }
    points = [{"bytes": size, "us": _short(seconds * 1e6)} for size, seconds in link.points]
    return {**table, "points": points} if points else table


def _short(value: float) -> float:
    return float(f"{value:.4g}")
