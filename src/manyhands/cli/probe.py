"""`manyhands probe`."""

from pathlib import Path
from tempfile import TemporaryFile
from typing import Annotated

import typer

from manyhands.cli import output, outputs
from manyhands.errors import InputError
from manyhands.files import make_folder, storage_errors
from manyhands.machine import machine_toml
from manyhands.machine.link import Link
from manyhands.machine.machine import Machine
from manyhands.measure import machine_probe as probing

SIZES = {"1 MB": 2**20, "64 MB": 2**26}


def probe(
    out: Annotated[Path, typer.Option("--out", parser=outputs.file_name, help="The file to write.")] = Path(
        "machine.toml"
    ),
    ranks: Annotated[int | None, typer.Option("--ranks", help="Measure links of at most so many.")] = None,
    as_json: output.Json = False,
    quiet: output.Quiet = False,
) -> None:
    """Measure this machine: rates of its cores and GPUs, links between ranks; takes a minute on a few cores."""
    output.set_output(as_json, quiet)
    if ranks is not None and ranks < 1:
        raise InputError(f"ranks={ranks}: a whole number, at least 1, is needed")
    outputs.check({"--out": out})  # said before the minute is spent
    if not out.exists():
        with storage_errors(out), TemporaryFile(dir=make_folder(out.absolute().parent)):
            pass  # root may write anywhere by its rights, and yet not in /proc
    machine = probing.probe(ranks)
    machine_toml.write(machine, out)
    if output.wants_json():
        output.emit(machine.to_json())
    else:
        show(machine)
        print(f"written to {out}")


def show(machine: Machine) -> None:
    """A table of rates, a table of links."""
    settings = sorted({(rate.device, rate.threads) for rate in machine.rates})
    work = dict.fromkeys((rate.operation, rate.precision, rate.unit) for rate in machine.rates)
    found = {(rate.operation, rate.precision, rate.device, rate.threads): rate.rate for rate in machine.rates}
    output.table(
        ["rate", "unit", *(_setting(*each) for each in settings)],
        [
            [
                f"{operation} {precision}",
                unit,
                *(output.number(found.get((operation, precision, *each)), 1) for each in settings),
            ]
            for operation, precision, unit in work
        ],
        str(machine),
    )
    if machine.links:
        columns = ["link", "ranks", "latency µs", "GB/s", *(f"at {name}" for name in SIZES)]
        output.table(columns, list(map(_link, machine.links)))


def _setting(device: str, threads: int) -> str:
    if device == "cuda":
        return "GPU"
    return "1 thread" if threads == 1 else f"{threads} threads"


def _link(link: Link) -> list[str]:
    return [
        f"{link.backend} {link.operation.replace('_', ' ')}",
        str(link.ranks),
        output.number(link.latency_us, 1),
        output.number(link.gb_per_s, 2),
        *(output.number(size / link.seconds(size) / 1e9, 2) for size in SIZES.values()),
    ]
