"""Layer rules: how the layers of a name are split, whatever a plan's axes say.

In a plan file, where later entries win:

    [[layers]]
    name = "dense_*"          # a layer or a pattern of names; one of several that are joined is then split apart
    parameter = 4             # beside it sample, reduction and copies; 1 where they are left out
    devices = [0, 1, 2, 3]    # of the parts, samples counted slowest; the first ones where they are left out
    cannon = true             # of dense layers by sample=q, parameter=q: the weight in q x q blocks (Cannon)
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import prod
from typing import Any

from manyhands.errors import PlanError, choices
from manyhands.graph.graph import Layer
from manyhands.plan.sharding import Split

DEGREES = ("sample", "parameter", "reduction", "copies")
MOST_PARTS = 65536
MOST_NAMED = 8  # layers in the one line of an error


@dataclass(frozen=True)
class NamedSplit:
    """A pattern of layers' names, and their split."""

    name: str
    split: Split

    def matches(self, layer: Layer) -> bool:
        return any(fnmatchcase(each, self.name) for each in (layer.name, *layer.names))


def read_named(entries: Any, source: str) -> tuple[NamedSplit, ...]:
    """The entries of a plan file, as `named_tables` makes them."""
    if not isinstance(entries, list) or not all(isinstance(each, Mapping) for each in entries):
        raise PlanError(f"{source}: layers is {entries!r}, a list of tables, each under a line [[layers]], is needed")
    return tuple(_read(entry, f"{source}: entry {number} of layers") for number, entry in enumerate(entries, 1))


def _read(entry: Mapping[str, Any], place: str) -> NamedSplit:
    allowed = ("name", *DEGREES, "devices", "cannon")
    for key in entry:
        if key not in allowed:
            raise PlanError(f"{place}: unknown key '{key}': {choices(key, allowed)}")
    name = entry.get("name")
    if not isinstance(name, str) or not name:
        raise PlanError(f"{place}: name is {name!r}, the name of a layer or a pattern such as dense_* is needed")
    degrees = {key: entry.get(key, 1) for key in DEGREES}
    for key, degree in degrees.items():
        if type(degree) is not int or degree < 1:
            raise PlanError(f"{place}: {key} is {degree!r}, a whole number, at least 1, is allowed")
    if prod(degrees.values()) > MOST_PARTS:
        raise PlanError(f"{place}: {prod(degrees.values())} parts are more than {MOST_PARTS}: use smaller degrees")
    devices = entry.get("devices", list(range(prod(degrees.values()))))
    if not isinstance(devices, list) or not all(type(each) is int and each >= 0 for each in devices):
        raise PlanError(f"{place}: devices is {devices!r}, a list of numbers from 0 on such as [0, 1] is needed")
    cannon = entry.get("cannon", False)
    if type(cannon) is not bool:
        raise PlanError(f"{place}: cannon is {cannon!r}, true or false is allowed")
    try:
        return NamedSplit(name, Split(**degrees, devices=tuple(devices), cannon=cannon))
    except PlanError as error:
        raise PlanError(f"{place}: {error}") from None


def read_places(entries: Any, source: str) -> tuple[tuple[str, str], ...]:
    """Patterns of layers and where they are: [[places]] with name = "pool*", device = "cpu"."""
    if not isinstance(entries, list) or not all(isinstance(each, Mapping) for each in entries):
        raise PlanError(f"{source}: places is {entries!r}, a list of tables, each under a line [[places]], is needed")
    found = []
    for number, entry in enumerate(entries, 1):
        name, device = entry.get("name"), entry.get("device")
        if set(entry) != {"name", "device"} or not isinstance(name, str) or device not in ("cpu", "cuda"):
            raise PlanError(
                f"{source}: entry {number} of places is {dict(entry)}: "
                'name = "pool*" and device = "cpu" or "cuda" are needed, nothing else'
            )
        found.append((name, device))
    return tuple(found)


def named_tables(layers: Iterable[NamedSplit]) -> list[dict[str, Any]]:
    """The entries as tables of plain values, for TOML and JSON."""
    return [
        {
            "name": each.name,
            **{key: degree for key, degree in each.split.degrees.items() if degree > 1},
            "devices": list(each.split.devices),
            **({"cannon": True} if each.split.cannon else {}),
        }
        for each in layers
    ]


def some_names(layers: Iterable[Layer]) -> str:
    """Layers for an error to show what there is."""
    names = [layer.name for layer in layers]
    return ", ".join(names[:MOST_NAMED]) + (" …" if len(names) > MOST_NAMED else "")
