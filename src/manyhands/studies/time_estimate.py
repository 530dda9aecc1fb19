"""Time estimate: how long a sweep will take, from earlier runs of the same kind or from one short training."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from manyhands.errors import InputError
from manyhands.files import TemporaryFolder, home
from manyhands.progress import bar
from manyhands.runs import run_folder
from manyhands.studies.grid import Case
from manyhands.studies.runner import Sweep

SHORT_STEPS = 12  # of the training that is timed when nothing is known


def seconds_of(cases: Sequence[Case], folder: Path | None) -> tuple[list[float], str]:
    """Seconds of each case's training, and what they were told from."""
    known = [run for place in (home() / "runs", folder) if place and place.is_dir() for run in run_folder.find(place)]
    finished = [run for run in known if run.result and run.result.get("samples_per_s") and run.record.get("samples")]
    like = [[run for run in finished if _alike(run, case)] for case in cases]
    if all(like):
        return [_seconds(case, runs[-1]) for case, runs in zip(cases, like, strict=True)], "earlier runs like these"
    short = _short(cases[0])
    if not short.result or not short.result["samples_per_s"]:
        error = str(short.record.get("error"))
        if short.record.get("exit_code") == InputError.exit_code:
            raise InputError(error)
        return [], f"nothing: the first case fails: {error}"
    told = [_seconds(case, runs[-1] if runs else short) for case, runs in zip(cases, like, strict=True)]
    return told, f"a training of {SHORT_STEPS} steps of {cases[0].label}, as if all went at its speed"


def _alike(run: run_folder.Run, case: Case) -> bool:
    """The same model, data and batch, with a plan that says all that the case's says."""
    theirs: dict[str, Any] = run.record["config"]
    mine = json.loads(json.dumps(case.config.to_json()))  # tuples are lists in run.json
    return (
        theirs["model"] == mine["model"]
        and theirs["data"]["name"] == mine["data"]["name"]
        and theirs["train"]["batch_size"] == mine["train"]["batch_size"]
        and set(str(case.plan).split(",")) <= set(run.plan.split(","))
    )


def _seconds(case: Case, run: run_folder.Run) -> float:
    """What it took around the training, and the samples at the run's speed."""
    assert run.result is not None
    train, told = case.config.train, run.result["seconds"]
    samples = run.record["samples"]["train"]
    if case.config.data.size is not None:
        samples = min(samples, case.config.data.size)
    steps = train.epochs * -(-samples // train.batch_size)
    steps = min(steps, train.max_steps) if train.max_steps else steps
    return float(told["total"] - told["train"] + steps * train.batch_size / run.result["samples_per_s"])


def _short(case: Case) -> run_folder.Run:
    config = replace(case.config, train=replace(case.config.train, max_steps=SHORT_STEPS))
    with TemporaryFolder() as folder, bar("a short training", 1, "trainings") as shown:
        return Sweep(Path(folder), 1, shown).train(0, replace(case, config=config), 0)
