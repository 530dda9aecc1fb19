"""Study: a published experiment made again, trained or simulated as a recipe tells it, beside what was published."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from manyhands.config import with_values
from manyhands.errors import InputError, PlanError, StorageError
from manyhands.files import locked, write_json
from manyhands.machine.detect import detect
from manyhands.runs import run_folder
from manyhands.runs.environment import versions
from manyhands.studies import derived_metrics, time_estimate
from manyhands.studies.aggregate import rows as rows_of
from manyhands.studies.claims import judge
from manyhands.studies.grid import Case
from manyhands.studies.optuna_search import train_sampled
from manyhands.studies.recipe import Order, Recipe, Row
from manyhands.studies.runner import LOCK, ORDER, clear, train_all
from manyhands.studies.scaling_laws import fits
from manyhands.studies.simulation_options import FEW
from manyhands.train.plan_constraints import resolve


def cases(order: Order) -> tuple[list[Case], list[Row]]:
    """What can be trained on this machine; the others, each with the reason."""
    machine = detect()
    here: list[Case] = []
    left_out: list[Row] = []
    for case in order.recipe.cases(order.full, order.config):
        try:
            resolve(case.plan, case.config, machine)
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
        seconds, told_from = time_estimate.seconds_of(every, out)
    else:
        from manyhands.studies import simulated  # torch and numba come in here

        every = _virtual_cases(order)
        seconds, told_from = simulated.seconds_of(every, order.recipe.by)
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
    return folder, record_of(order, _trained_rows(every, made), left_out, str(detect()), used(recipe, every_run))


def _simulate(order: Order, out: Path | None) -> tuple[Path, Row]:
    from manyhands.studies import simulated  # torch and numba come in here

    every, by = _virtual_cases(order), order.recipe.by
    folder = _folder(order, out)
    with locked(folder / LOCK, wait=False):
        made = simulated.searched(every, order.times, folder) if by == "search" else simulated.predicted(every)
    if not made.rows:
        clear(folder)
        raise InputError(f"study {order.recipe.name}: nothing of it can be; {made.left_out[0]['reason']}")
    machines = ", ".join(dict.fromkeys(case.virtual.machine for case in every if case.virtual))
    here = f"{detect()}, on which {machines} was searched" if by == "search" else f"simulated: {machines}"
    return folder, record_of(order, made.rows, made.left_out, here, made.used)


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
        row |= {"label": row.pop("plan"), "cell": dict(case.values), "backward": derived_metrics.backward_of(runs)}
        row["runs"] = [Path(folder).name for folder in row["runs"]]
    return rows


def record_of(order: Order, rows: list[Row], left_out: list[Row], here: str, note: str | None) -> Row:
    """What study.json holds."""
    recipe = order.recipe
    derived_metrics.derive(rows, recipe.columns)
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
        "finding": judge(recipe.claims, rows),
    }


def used(recipe: Recipe, runs: Sequence[run_folder.Run]) -> str | None:
    """How many samples were trained on, of those that the source had."""
    sizes = [run.record["samples"] for run in runs if run.record.get("samples")]
    if not sizes:
        return None
    most = max(size["train"] + size["validation"] for size in sizes)
    return f"{most:,} training samples" + (f" of the source's {recipe.whole:,}" if recipe.whole else "")
