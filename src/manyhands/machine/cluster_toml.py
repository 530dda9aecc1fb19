"""Cluster TOML: a cluster from a file, shipped or a user's own, for machines that are not at hand.

name = "p100x4-ib"
devices = 4               # as many as are taken where nobody says how many
collectives = "ring"      # or direct: each sends to each
overlap = true            # transfers go on while devices compute
speeds = [1, 1, 1, 0.5]   # of uneven devices, relative; and
jitter = 0.1              # how much a step's time varies, over its mean: both for `simulate --accuracy`

[accelerator]
name = "P100"
memory_gb = 16            # of 2^30 bytes
gb_per_s = 732            # of its memory, 10^9 bytes
tflop_per_s = { fp32 = 10.6 }
efficiency = { conv = 0.6, dense = 0.6 }  # share of the peak that a kind of layer reaches; else half
half_batch = 8            # samples at which half of that is reached

[[levels]]                # what joins groups of so many devices to the others; 1: a device's own port
devices = 1
gb_per_s = 18
latency_us = 8
duplex = true             # both directions at once
"""

from collections.abc import Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from manyhands.errors import MachineError, choices
from manyhands.files import read_toml
from manyhands.machine.cluster import COLLECTIVES, Accelerator, Cluster, Level
from manyhands.machine.toml_fields import MOST, Fields

GB = 2**30  # of memory
PRECISIONS = ("fp32", "bf16")
# As in graph.KINDS, whose room this one does not know; a test holds them equal.
KINDS = ("conv", "dense", "embedding", "recurrent", "attention", "norm", "pool", "pointwise", "loss", "other")
MOST_DEVICES = 65536


def shipped() -> Traversable:
    return files("manyhands.machine.known")


def names() -> list[str]:
    """The shipped ones."""
    return sorted(each.name.removesuffix(".toml") for each in shipped().iterdir() if each.name.endswith(".toml"))


def find(text: str) -> Cluster:
    """The cluster of a shipped name, or of a user's TOML file."""
    if text.endswith(".toml") or "/" in text:
        return read(Path(text))
    if text not in names():
        allowed = choices(text, ["here", *names()])
        raise MachineError(f"unknown machine '{text}': {allowed}; or the path of your own TOML file")
    return read(Path(str(shipped() / f"{text}.toml")))


def read(path: Path) -> Cluster:
    """A cluster from a TOML file."""
    table = read_toml(path, "machine", MachineError, f"give an existing one, or one of {', '.join(names())}")
    return _cluster(Fields(table, str(path)), path)


def _cluster(fields: Fields, path: Path) -> Cluster:
    if "accelerator" not in fields.table:
        raise MachineError(
            f"{path} has no [accelerator]: what the simulator needs is that and [[levels]], as in the shipped "
            f"{', '.join(names())}; a file that `manyhands probe` wrote says other things"
        )
    name = fields.text("name", path.stem)
    devices = fields.whole("devices", 1, 1, MOST_DEVICES)
    collectives = fields.choice("collectives", COLLECTIVES, "ring")
    overlap, late = _flag(fields, "overlap", True), _flag(fields, "late", False)
    accelerator = _accelerator(_section(fields, "accelerator"))
    levels = tuple(map(_level, fields.entries("levels")))
    speeds = _speeds(fields)
    jitter = fields.number("jitter", zero=True) if fields.get("jitter", 0) else 0.0
    fields.finish()
    try:
        return Cluster(devices, accelerator, levels, collectives, overlap, late, name, speeds, jitter)
    except MachineError as error:
        raise MachineError(f"{path}: {error}") from None


def _accelerator(fields: Fields) -> Accelerator:
    rates = _numbers(_section(fields, "tflop_per_s"), PRECISIONS)
    if "fp32" not in rates:
        raise fields.refuse("tflop_per_s", rates, "at least fp32")
    shares = _numbers(_section(fields, "efficiency", {}), KINDS)
    for kind, share in shares.items():
        if share > 1:
            raise fields.refuse(f"efficiency of {kind}", share, "a share of the peak, at most 1,")
    accelerator = Accelerator(
        name=fields.text("name"),
        memory_bytes=round(fields.number("memory_gb") * GB),
        tflop_per_s=rates,
        gb_per_s=fields.number("gb_per_s"),
        efficiency=shares,
        half_batch=fields.number("half_batch", zero=True) if fields.get("half_batch", 0) else 0.0,
    )
    fields.finish()
    return accelerator


def _level(fields: Fields) -> Level:
    level = Level(
        devices=fields.whole("devices", 1, most=MOST_DEVICES),
        gb_per_s=fields.number("gb_per_s"),
        latency_us=fields.number("latency_us", zero=True),
        duplex=_flag(fields, "duplex", True),
    )
    fields.finish()
    return level


def _speeds(fields: Fields) -> tuple[float, ...]:
    given = fields.get("speeds", [])
    if not isinstance(given, list) or not all(
        isinstance(each, int | float) and not isinstance(each, bool) and 0 < each <= MOST for each in given
    ):
        raise fields.refuse("speeds", given, "a list of numbers above zero such as [1, 1, 0.5]")
    return tuple(map(float, given))


def _flag(fields: Fields, key: str, default: bool) -> bool:
    value = fields.get(key, default)
    if not isinstance(value, bool):
        raise fields.refuse(key, value, "true or false")
    return value


def _section(fields: Fields, key: str, default: dict[str, float] | None = None) -> Fields:
    value = fields.get(key, default)
    if not isinstance(value, dict):
        raise fields.refuse(key, value, "a table of fields")
    return Fields(value, f"{fields.place}: {key}")


def _numbers(fields: Fields, allowed: Sequence[str]) -> dict[str, float]:
    """The numbers that are given, by names of which all may be left out."""
    fields.asked.update(dict.fromkeys(allowed))
    fields.finish()
    return {key: fields.number(key) for key in fields.table}
