"""Compare: plans side by side, like for like: same seeds, same data order, same epochs, repeats interleaved."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from manyhands.config import Config, with_values
from manyhands.files import write_json
from manyhands.plan.plan import Plan
from manyhands.studies.aggregate import rows
from manyhands.studies.grid import Case
from manyhands.studies.runner import train_all

Variants = Mapping[str, Mapping[str, Any]]  # by name, what is changed in the config


def cases(config: Config, plans: Sequence[tuple[str, Plan]], variants: Variants | None = None) -> list[Case]:
    """Every plan, as it was written, with every variant of the config."""
    if not variants:
        return [Case(label, plan, config) for label, plan in plans]
    return [
        Case(f"{label} @ {name}", plan, with_values(config, changes))
        for label, plan in plans
        for name, changes in variants.items()
    ]


def by_affinity(sets: Sequence[str]) -> Variants:
    """A variant for each set of cores."""
    return {each: {"cpu.affinity": each} for each in sets}


def compare(
    config: Config, plans: Sequence[tuple[str, Plan]], repeats: int, out: Path, variants: Variants | None = None
) -> dict[str, Any]:
    """Train every case `repeats` times, and lay them side by side."""
    every = cases(config, plans, variants)
    made = train_all(every, repeats, out)
    comparison = {"rows": rows([case.label for case in every], made), "out": str(out)}
    write_json(out / "compare.json", comparison)
    return comparison
