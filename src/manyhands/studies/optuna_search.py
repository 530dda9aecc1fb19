"""Optuna search: cells that Optuna chooses, each from what the earlier ones came to.

Its sampler is seeded and is told the cells in their order, so a sweep that goes on after a kill asks for the same
cells, and those that have finished are not trained again.
"""

import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manyhands.config import Config
from manyhands.errors import MissingPackage
from manyhands.progress import say
from manyhands.runs import run_folder
from manyhands.studies.grid import Case
from manyhands.studies.recipe import Recipe
from manyhands.studies.runner import fail, sweep

if TYPE_CHECKING:
    from optuna import Trial

SEED = 0


def train_sampled(recipe: Recipe, config: Config, full: bool, folder: Path) -> list[tuple[Case, list[run_folder.Run]]]:
    """Train `recipe.trials` cells, each `repeats` times, and give them in the order in which they were chosen."""
    try:
        import optuna
    except ImportError:
        raise MissingPackage("design=optuna needs Optuna: pip install 'manyhands[search]'") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        direction="minimize" if recipe.measure == "train_seconds" else "maximize",
        sampler=optuna.samplers.TPESampler(seed=SEED),
    )
    (axes,) = recipe.varied(full)
    made: list[tuple[Case, list[run_folder.Run]]] = []
    with sweep(folder, recipe.trials * recipe.repeats) as going:
        for number in range(recipe.trials):
            trial = study.ask()
            case = recipe.case({key: _suggest(trial, key, values) for key, values in axes.items()}, config, axes.keys())
            runs = [going.train(number, case, repeat) for repeat in range(recipe.repeats)]
            made.append((case, runs))
            if all(run.status != "finished" for run in runs):
                if number == 0:
                    raise fail(runs[0], folder)
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
                continue
            study.tell(trial, statistics.fmean(measure_of(run, recipe.measure) for run in runs if run.result))
            say(f"  best so far: {study.best_value:.4g} with {study.best_params}")
    return made


def measure_of(run: run_folder.Run, measure: str) -> float:
    """A measure of a finished run."""
    assert run.result is not None
    return float(run.result["seconds"]["train"] if measure == "train_seconds" else run.result[measure])


def _suggest(trial: "Trial", key: str, values: Any) -> Any:
    """The next value of an axis: one of a list, or a number from a range."""
    if not isinstance(values, Mapping):
        return trial.suggest_categorical(key, values)
    low, high, log = values["low"], values["high"], bool(values.get("log", False))
    if isinstance(low, int) and isinstance(high, int):
        return trial.suggest_int(key, low, high, log=log)
    return trial.suggest_float(key, low, high, log=log)
