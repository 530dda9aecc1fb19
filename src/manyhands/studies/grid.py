"""Grid: the cells of a study: what is varied in each, by axis, and what a cell is called."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from manyhands.config import Config
from manyhands.plan.plan import Plan
from manyhands.studies.simulation_options import Virtual

Values = Mapping[str, Any]  # by axis

LINE = "line"  # the name of a grid among several
# What a value is called in a label, where that is not the last part of its key; some stand for themselves.
CALLED = {
    LINE: "",
    "plan": "",
    "plan.backend": "",
    "optim.name": "",
    "model.name": "",
    "data.name": "",
    "model.activation": "",
    "train.batch_size": "batch",
    "cpu.affinity": "cores",
    "machine": "on",
    "devices": "devices",
    "simulator": "",
    "proposals": "proposals",
}


def is_plan(key: str) -> bool:
    return key == "plan" or key.startswith("plan.")


def grid(axes: Values) -> Iterator[Values]:
    """Every value of each axis with every value of the others; the first axis turns slowest."""
    lists = [values if isinstance(values, list) else [values] for values in axes.values()]
    return (dict(zip(axes, values, strict=True)) for values in product(*lists))


def one_at_a_time(axes: Values) -> Iterator[Values]:
    """The base, then each value of each axis alone."""
    yield {}
    for key, values in axes.items():
        yield from ({key: value} for value in (values if isinstance(values, list) else [values]))


def varying(cells: Sequence[Values]) -> set[str]:
    """The axes that do not have one value throughout."""
    every = {key for cell in cells for key in cell}
    return {key for key in every if any(cell.get(key) != cells[0].get(key) for cell in cells)}


def telling(cells: Sequence[Values]) -> set[str]:
    """The axes that tell cells apart; a line stands for all that has one value along it."""
    lines: dict[Any, list[Values]] = {}
    for cell in cells:
        lines.setdefault(cell.get(LINE), []).append(cell)
    within = {key for along in lines.values() for key in varying(along)}
    return {key for key in varying(cells) if key == LINE or key in within}


def label(cell: Values) -> str:
    """What a cell is called.

    >>> label({"plan": "data:2", "train.batch_size": 64})
    'data:2, batch 64'
    """
    parts = (f"{CALLED.get(key, key.partition('.')[2])} {value}".strip() for key, value in cell.items())
    return ", ".join(parts) or "base"


@dataclass(frozen=True)
class Case:
    """What makes one row: a plan and the config that it trains with, and what in them is varied."""

    label: str
    plan: Plan
    config: Config
    values: Mapping[str, Any] = field(default_factory=dict)
    virtual: Virtual | None = None  # where it is simulated, if it is
