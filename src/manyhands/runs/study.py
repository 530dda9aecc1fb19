"""Study: a published experiment made again on this machine, as a recipe tells it, beside what was published."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from manyhands.errors import ConfigError, InputError, StorageError
from manyhands.files import write_json
from manyhands.machine.detect import detect
from manyhands.runs import amdahl, columns, estimate, store
from manyhands.runs.config import Config, with_values
from manyhands.runs.early import settle_early
from manyhands.runs.finding import finding
from manyhands.runs.recipe import Recipe
from manyhands.runs.rows import rows as rows_of
from manyhands.runs.sampled import train_sampled
from manyhands.runs.sweep import Case, train_all

Row = dict[str, Any]
ORDER = "sweep.json"


@dataclass(frozen=True)
class Order:
    """A recipe, and what the user said about it."""

    recipe: Recipe
    full: bool = False
    repeats: int | None = None
    changes: Mapping[str, str] | None = None  # of the config
    smoke: bool = False  # one cell, two steps: does it run?

    def __post_init__(self) -> None:
        for key in self.changes or {}:
            if any(key in axes for axes in self.recipe.varied(self.full)):
                raise ConfigError(f"--set {key}: study {self.recipe.name} varies it; copy its recipe to change that")

    @property
    def times(self) -> int:
        """Trainings of each cell."""
        return 1 if self.smoke else self.repeats or self.recipe.repeats

    @property
    def config(self) -> Config:
        return self.recipe.config(self.full, self.changes or {})

    @property
    def command(self) -> str:
        words = ["manyhands study", self.recipe.name, *(["--full"] if self.full else [])]
        words += [f"--repeats {self.repeats}"] if self.repeats else []
        return " ".join([*words, *(f"--set {key}={value}" for key, value in (self.changes or {}).items())])

    def to_json(self) -> dict[str, Any]:
        told = asdict(replace(self, changes=dict(self.changes or {})))
        return json.loads(json.dumps(told))  # type: ignore[no-any-return]


def cases(order: Order) -> tuple[list[Case], list[Row]]:
    """What can be trained on this machine; the others, each with the reason."""
    machine = detect()
    here: list[Case] = []
    left_out: list[Row] = []
    for case in order.recipe.cases(order.full, order.config):
        try:
            settle_early(case.plan, case.config, machine)
            here.append(case)
        except InputError as why:
            left_out.append({"label": case.label, "reason": str(why)})
    if not here:
        raise InputError(f"study {order.recipe.name}: nothing of it can run here; {left_out[0]['reason']}")
    return ([_smoke(here[0])], left_out) if order.smoke else (here, left_out)


def _smoke(case: Case) -> Case:
    few = {"data.size": 4 * case.config.train.batch_size + 200, "data.test_size": 500}
    return replace(case, config=with_values(case.config, {**few, "train.max_steps": 2, "train.epochs": 1}))


def dry_run(order: Order, out: Path | None) -> dict[str, Any]:
    """What would be trained, and about how long that takes."""
    every, left_out = cases(replace(order, recipe=_as_grid(order.recipe, order.full)))
    seconds, told_from = estimate.seconds_of(every, out)
    cells = [
        {"label": case.label, "plan": str(case.plan), "repeat": repeat, "seconds": about}
        for repeat in range(order.times)
        for case, about in zip(every, seconds or [None] * len(every), strict=True)  # type: ignore[list-item]
    ]
    total = order.times * sum(seconds) if seconds else None
    return {
        "study": order.recipe.name,
        "cells": cells,
        "left_out": left_out,
        "estimated_seconds": total,
        "estimated_from": told_from,
    }


def _as_grid(recipe: Recipe, full: bool) -> Recipe:
    """For Optuna, whose cells are not known before: as many as it will choose, in the middle of every range."""
    if recipe.design != "optuna":
        return recipe
    (axes,) = recipe.varied(full)
    middle = {
        key: type(values["low"])((values["low"] + values["high"]) / 2) if isinstance(values, Mapping) else values[0]
        for key, values in axes.items()
    }
    return replace(recipe, design="grid", grids=[middle] * recipe.trials)


def run(order: Order, out: Path | None) -> dict[str, Any]:
    """Train all that this machine can, and lay it beside what was published; a folder begun before is finished."""
    recipe = order.recipe
    left_out: list[Row] = []
    if recipe.design == "optuna" and not order.smoke:
        folder = _folder(order, out)
        chosen = train_sampled(replace(recipe, repeats=order.times), order.config, order.full, folder)
        every, made = [case for case, _ in chosen], [runs for _, runs in chosen]
    else:
        every, left_out = cases(replace(order, recipe=_as_grid(recipe, order.full)))
        folder = _folder(order, out)
        made = train_all(every, order.times, folder)
    study = told(order, every, made, left_out)
    write_json(folder / "study.json", study)
    return {**study, "out": str(folder)}


def _folder(order: Order, out: Path | None) -> Path:
    """A new folder with the order in it, or one that holds the same order already."""
    wanted = order.to_json()
    if out is not None and (out / ORDER).exists():
        try:
            found = json.loads((out / ORDER).read_text())
        except ValueError:
            raise StorageError(f"{out / ORDER} is damaged: choose another --out") from None
        if found != wanted:
            other = ", ".join(key for key in wanted if found.get(key) != wanted[key])
            raise StorageError(f"the folder {out} holds another sweep (its {other} differs): choose another --out")
        return out
    folder = store.new_folder(out, f"study-{order.recipe.name}")
    write_json(folder / ORDER, wanted)
    return folder


def told(order: Order, every: Sequence[Case], made: Sequence[Sequence[store.Run]], left_out: list[Row]) -> Row:
    """What study.json holds."""
    recipe = order.recipe
    rows = rows_of([case.label for case in every], made)
    for row, case, runs in zip(rows, every, made, strict=True):
        row |= {"label": row.pop("plan"), "cell": dict(case.values), "backward": columns.backward_of(runs)}
        row["runs"] = [Path(folder).name for folder in row["runs"]]
    columns.derive(rows, recipe.columns)
    return {
        "study": recipe.name,
        "title": recipe.title,
        "source": recipe.source,
        "full": order.full,
        "command": order.command,
        "used": used(recipe, [run for runs in made for run in runs]),
        "hardware": {"here": str(detect()), "published": recipe.hardware},
        "axes": list(dict.fromkeys(key for row in rows for key in row["cell"])),
        "plot": recipe.plot,
        "measure": recipe.measure,
        "rows": rows,
        "published": list(recipe.published),
        "fits": fits(rows) if recipe.plot == "scaling" else [],
        "left_out": left_out,
        "differs": recipe.differs,
        "finding": finding(recipe.claims, rows),
    }


def used(recipe: Recipe, runs: Sequence[store.Run]) -> str | None:
    """How many samples were trained on, of those that the source had."""
    sizes = [run.record["samples"] for run in runs if run.record.get("samples")]
    if not sizes:
        return None
    most = max(size["train"] + size["validation"] for size in sizes)
    return f"{most:,} training samples" + (f" of the source's {recipe.whole:,}" if recipe.whole else "")


def fits(rows: Sequence[Row]) -> list[Row]:
    """Amdahl's law on every line of a scaling study that goes from one rank to more."""
    lines: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        if (speedup := columns.scaled(row, rows)) is not None:
            lines.setdefault(columns.line(row), []).append((columns.ranks(row), speedup))
    table = []
    for label, points in lines.items():
        if len(points) > 1 and min(points)[0] == 1:
            share = amdahl.fit(points)
            most = 1 / share if share else None
            table.append({"label": label, "serial_fraction": share, "most": most, "points": points})
    return table
