"""Study: a published experiment made again on this machine, as a recipe (TOML) tells it, beside its published table."""

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from manyhands.errors import ConfigError, InputError, choices
from manyhands.files import write_json
from manyhands.machine import affinity
from manyhands.machine.detect import detect
from manyhands.machine.machine import Machine
from manyhands.plan.words import parse
from manyhands.runs import compare, store
from manyhands.runs.config import Config, with_values

Row = dict[str, Any]
AXES = ("affinity",)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What a study trains, what it varies, and what the source reports."""

    name: str
    source: str
    hardware: str  # that the source used
    differs: str  # how the source's experiment was another one
    plan: str
    repeats: int
    claim: Mapping[str, Any]  # what the source found: `words`, and the number that decides whether it holds
    axes: Mapping[str, Sequence[str]]  # what is varied
    base: Mapping[str, Any]  # config keys
    small: Mapping[str, Any]  # the same, without and
    full: Mapping[str, Any]  # with --full
    published: Sequence[Row]

    def config(self, full: bool) -> Config:
        return with_values(Config(), {**self.base, **(self.full if full else self.small)})


def recipes() -> Traversable:
    return files("manyhands.recipes")


def names() -> list[str]:
    return sorted(each.name.removesuffix(".toml") for each in recipes().iterdir() if each.name.endswith(".toml"))


def read(name: str) -> Recipe:
    """The recipe of a name."""
    if name not in names():
        raise InputError(f"unknown study '{name}': {choices(name, names())}")
    table: Row = {"name": name, **tomllib.loads((recipes() / f"{name}.toml").read_text())}
    known = {each.name for each in fields(Recipe)}
    if wrong := known ^ table.keys():
        raise ConfigError(f"recipe {name}: {', '.join(sorted(wrong))} missing or unknown; a recipe has {sorted(known)}")
    if [*table["axes"]] not in [[axis] for axis in AXES]:
        raise ConfigError(f"recipe {name}: axes {[*table['axes']]}; one of {', '.join(AXES)} is allowed")
    for part in ("base", "small", "full"):
        table[part] = {
            f"{section}.{key}": value for section, keys in table[part].items() for key, value in keys.items()
        }
    return Recipe(**table)


def run(recipe: Recipe, full: bool, out: Path | None) -> dict[str, Any]:
    """Train every set that this machine has, repeats interleaved, and lay the result beside the published one."""
    machine = detect()
    sets, left_out = here(recipe.axes["affinity"], machine)
    if not sets:
        have = ", ".join(str(core.id) for core in machine.cores)
        raise InputError(f"study {recipe.name}: none of its sets of cores is here; this machine has {have}")
    plans = [(recipe.plan, parse(recipe.plan))]
    folder = store.new_folder(out, f"study-{recipe.name}")
    made = compare.compare(recipe.config(full), plans, recipe.repeats, folder, compare.by_affinity(sets))
    rows = with_gains([our_row(cores, row) for cores, row in zip(sets, made["rows"], strict=True)])
    published = with_gains([{**row, "cores": count(row["affinity"])} for row in recipe.published])
    study = {
        "study": recipe.name,
        "source": recipe.source,
        "full": full,
        "hardware": {"here": str(machine), "published": recipe.hardware},
        "rows": rows,
        "published": published,
        "differs": recipe.differs,
        "finding": finding(recipe.claim, rows, published),
        "left_out": left_out,
        "out": str(folder),
    }
    write_json(folder / "study.json", study)
    return study


def here(sets: Sequence[str], machine: Machine) -> tuple[list[str], list[Row]]:
    """The sets whose cores are all here; the others, with the cores that they lack."""
    lacking = {each: affinity.missing(affinity.read_sets(each), machine) for each in sets}
    left_out = [{"affinity": each, "missing": cores} for each, cores in lacking.items() if cores]
    return [each for each in sets if not lacking[each]], left_out


def count(cores: str) -> int:
    return sum(map(len, affinity.read_sets(cores)))


def our_row(cores: str, row: Row) -> Row:
    """A row of the comparison as the source tells it: milliseconds of training."""
    seconds = row["train_seconds"]
    time_ms = {name: 1000 * value for name, value in seconds.items()} if seconds else None
    kept = {key: row[key] for key in ("plan", "bound", "samples_per_s", "test_accuracy", "n", "failed", "runs")}
    return {"affinity": cores, "cores": count(cores), "time_ms": time_ms, **kept}


def with_gains(rows: Sequence[Row]) -> list[Row]:
    """Each row with its gain: the slowest time over this time."""
    slowest = max((mean(row) for row in rows if row["time_ms"]), default=0.0)
    return [{**row, "gain": slowest / mean(row) if row["time_ms"] else None} for row in rows]


def mean(row: Row) -> float:
    """The time of a row, be it a mean with its deviation or a published number."""
    time_ms = row["time_ms"]
    return float(time_ms["mean"] if isinstance(time_ms, dict) else time_ms)


def finding(claim: Mapping[str, Any], rows: Sequence[Row], published: Sequence[Row]) -> str:
    """One sentence: whether what the source found holds here, for the best of the larger sets against the first."""
    one, others = rows[0], [row for row in rows[1:] if row["time_ms"]]
    said = f"The source's finding that {claim['words']}"
    if not one["time_ms"] or not others:
        return f"{said} cannot be tested here: fewer than two of its sets of cores were trained on."
    best = min(others, key=mean)
    doubt = abs(mean(one) / mean(best) - 1 - claim["gain_below"]) < 2 * error_of_ratio(one, best)
    holds = mean(one) / mean(best) - 1 < claim["gain_below"]
    verdict = "cannot be told from noise here" if doubt else "holds here" if holds else "does not hold here"
    told = f"cores {best['affinity']} took {spread(best)} against {spread(one)} on {one['affinity']}"
    told += f", {mean(best) / mean(one):.2f} times as long"
    there = {row["affinity"]: mean(row) for row in published}
    if one["affinity"] in there and best["affinity"] in there:
        told += f" (there {there[best['affinity']] / there[one['affinity']]:.2f} times)"
    if min(one["n"], best["n"]) < 2:
        told += "; single runs do not tell noise"
    return f"{said} {verdict}: {told}."


def error_of_ratio(one: Row, other: Row) -> float:
    """The standard error of the ratio of two mean times."""
    parts = (row["time_ms"]["std"] / mean(row) / math.sqrt(row["n"]) for row in (one, other))
    return mean(one) / mean(other) * math.hypot(*parts)


def spread(row: Row) -> str:
    return f"{mean(row) / 1000:.2f} ± {row['time_ms']['std'] / 1000:.2f} s"
