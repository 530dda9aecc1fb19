"""Study: a published experiment made again, trained or simulated as a recipe tells it, beside what was published."""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from manyhands.config import Config, with_values
from manyhands.errors import ConfigError, InputError, PlanError, StorageError
from manyhands.files import locked, write_json
from manyhands.machine.detect import detect
from manyhands.runs import columns, estimate, laws, run_folder
from manyhands.runs.environment import versions
from manyhands.runs.finding import finding
from manyhands.runs.recipe import Recipe
from manyhands.runs.rows import rows as rows_of
from manyhands.runs.sampled import train_sampled
from manyhands.runs.sweep import LOCK, ORDER, Case, clear, train_all
from manyhands.runs.virtual import FEW, Virtual
from manyhands.train.plan_constraints import settle_early

Row = dict[str, Any]


@dataclass(frozen=True)
class Order:
    """A recipe, and what the user said about it."""

    recipe: Recipe
    full: bool = False
    repeats: int | None = None
    changes: Mapping[str, str] | None = None  # of the config, and of where it is simulated
    smoke: bool = False  # one cell, two steps: does it run?

    def __post_init__(self) -> None:
        for key in self.changes or {}:
            if any(key in axes for axes in self.recipe.varied(self.full)):
                raise ConfigError(f"--set {key}: study {self.recipe.name} varies it; copy its recipe to change that")

    @property
    def times(self) -> int:
        """Trainings or searches of each cell; a simulation says the same each time."""
        return 1 if self.smoke or self.recipe.by == "simulation" else self.repeats or self.recipe.repeats

    @property
    def config(self) -> Config:
        return self.recipe.config(self.full, self.changes or {})

    @property
    def virtual(self) -> Virtual | None:
        return self.recipe.virtual(self.full, self.changes or {})

    @property
    def command(self) -> str:
        words = ["manyhands study", shlex.quote(self.recipe.file or self.recipe.name)]
        words += ["--full"] * self.full + ["--smoke"] * self.smoke
        words += [f"--repeats {self.repeats}"] if self.repeats else []
        return " ".join([*words, *(f"--set {key}={value}" for key, value in (self.changes or {}).items())])

    def to_json(self) -> dict[str, Any]:
        told = asdict(replace(self, changes=dict(self.changes or {})))
        del told["recipe"]["file"]  # the same recipe may be named by another path
        return json.loads(json.dumps(told))  # type: ignore[no-any-return]


def cases(order: Order) -> tuple[list[Case], list[Row]]:
    """What can be trained on this machine; the others, each with the reason."""
    machine = detect()
    here: list[Case] = []
    left_out: list[Row] = []
    for case in order.recipe.cases(order.full, order.config):
        try:
            settle_early(case.plan, case.config, machine)
            if not order.recipe.crowds and case.plan.world > len(machine.cores):
                ranks, cores = case.plan.world, len(machine.cores)
                raise PlanError(f"{ranks} ranks need {ranks} cores, this machine has {cores}: use fewer ranks")
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
    """What would be trained or simulated, and about how long that takes."""
    left_out: list[Row] = []
    if order.recipe.by == "training":
        every, left_out = cases(replace(order, recipe=_as_grid(order.recipe, order.full)))
        seconds, told_from = estimate.seconds_of(every, out)
    else:
        from manyhands.runs import study_simulated  # torch and numba come in here

        every = _virtual_cases(order)
        seconds, told_from = study_simulated.seconds_of(every, order.recipe.by)
    cells = [
        {"label": case.label, "plan": str(case.plan), "repeat": repeat, "seconds": about}
        for repeat in range(order.times)
        for case, about in zip(every, seconds or [None] * len(every), strict=True)  # type: ignore[list-item]
    ]
    total = order.times * sum(seconds) if seconds else None
    return {
        "study": order.recipe.name,
        "by": order.recipe.by,
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
    """Train or simulate all that can be, and lay it beside what was published; a folder begun before is finished."""
    folder, study = (_train if order.recipe.by == "training" else _simulate)(order, out)
    write_json(folder / "study.json", study)
    return {**study, "out": str(folder)}


def _train(order: Order, out: Path | None) -> tuple[Path, Row]:
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
    every_run = [run for runs in made for run in runs]
    return folder, told(order, _trained_rows(every, made), left_out, str(detect()), used(recipe, every_run))


def _simulate(order: Order, out: Path | None) -> tuple[Path, Row]:
    from manyhands.runs import study_simulated  # torch and numba come in here

    every, by = _virtual_cases(order), order.recipe.by
    folder = _folder(order, out)
    with locked(folder / LOCK, wait=False):
        made = (
            study_simulated.searched(every, order.times, folder) if by == "search" else study_simulated.predicted(every)
        )
    if not made.rows:
        clear(folder)
        raise InputError(f"study {order.recipe.name}: nothing of it can be; {made.left_out[0]['reason']}")
    machines = ", ".join(dict.fromkeys(case.virtual.machine for case in every if case.virtual))
    here = f"{detect()}, on which {machines} was searched" if by == "search" else f"simulated: {machines}"
    return folder, told(order, made.rows, made.left_out, here, made.used)


def _virtual_cases(order: Order) -> list[Case]:
    every = order.recipe.cases(order.full, order.config, order.virtual)
    if not order.smoke:
        return every
    assert every[0].virtual is not None
    return [replace(every[0], virtual=replace(every[0].virtual, proposals=FEW))]


def _folder(order: Order, out: Path | None) -> Path:
    """A new folder with the order in it, or one that holds the same order already."""
    wanted = order.to_json()
    if out is not None and (out / ORDER).exists():
        try:
            found = json.loads((out / ORDER).read_text())
            if not isinstance(found, dict):
                raise ValueError
        except ValueError:
            raise StorageError(f"{out / ORDER} is damaged: choose another --out") from None
        if found != wanted:
            other = ", ".join(key for key in wanted if found.get(key) != wanted[key])
            raise StorageError(f"the folder {out} holds another sweep (its {other} differs): choose another --out")
        return out
    if out is not None and out.is_dir() and any(out.iterdir()):
        raise StorageError(f"the folder {out} is not empty, and holds no sweep: choose another --out")
    folder = run_folder.new_folder(out, f"study-{order.recipe.name}")
    write_json(folder / ORDER, wanted)
    return folder


def _trained_rows(every: Sequence[Case], made: Sequence[Sequence[run_folder.Run]]) -> list[Row]:
    rows = rows_of([case.label for case in every], made)
    for row, case, runs in zip(rows, every, made, strict=True):
        row |= {"label": row.pop("plan"), "cell": dict(case.values), "backward": columns.backward_of(runs)}
        row["runs"] = [Path(folder).name for folder in row["runs"]]
    return rows


def told(order: Order, rows: list[Row], left_out: list[Row], here: str, note: str | None) -> Row:
    """What study.json holds."""
    recipe = order.recipe
    columns.derive(rows, recipe.columns)
    return {
        "study": recipe.name,
        "title": recipe.title,
        "source": recipe.source,
        "by": recipe.by,
        "full": order.full,
        "command": order.command,
        "used": note,
        "hardware": {"here": here, "published": recipe.hardware},
        "versions": versions(),
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


def used(recipe: Recipe, runs: Sequence[run_folder.Run]) -> str | None:
    """How many samples were trained on, of those that the source had."""
    sizes = [run.record["samples"] for run in runs if run.record.get("samples")]
    if not sizes:
        return None
    most = max(size["train"] + size["validation"] for size in sizes)
    return f"{most:,} training samples" + (f" of the source's {recipe.whole:,}" if recipe.whole else "")


def fits(rows: Sequence[Row]) -> list[Row]:
    """Amdahl's law, or Gustafson's where the batch grows, on every line of a scaling study from one rank to more."""
    lines: dict[str, list[tuple[int, float]]] = {}
    batches: dict[str, set[Any]] = {}
    for row in rows:
        if (speedup := columns.scaled(row, rows)) is not None:
            lines.setdefault(columns.line(row), []).append((columns.ranks(row), speedup))
            batches.setdefault(columns.line(row), set()).add(row["cell"].get("train.batch_size"))
    table = []
    for label, points in lines.items():
        if len(points) > 1 and min(points)[0] == 1:
            law = laws.AMDAHL if len(batches[label]) == 1 else laws.GUSTAFSON
            share = laws.fit(law, points)
            most = 1 / share if share and law == laws.AMDAHL else None
            table.append({"label": label, "law": law, "serial_fraction": share, "most": most, "points": points})
    return table
