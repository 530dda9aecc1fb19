"""Loader workers worker: steps with the loading in them, by the number of loader processes; a child's work."""

from typing import Any

from manyhands.config import with_values
from manyhands.errors import RunError
from manyhands.machine.detect import detect
from manyhands.train.autotune import autotune, loaders, shortest
from manyhands.train.step_timing import measure_fed
from manyhands.tune.child_process import Task


def work(task: Task) -> dict[str, Any]:
    """All numbers that this machine has the cores for, in turn; the first rank measures its share."""
    value = _measured(task) if task.team.is_leader else None
    found: dict[str, Any] = task.team.broadcast_json(value)
    return found


def _measured(task: Task) -> dict[str, Any]:
    machine, batch = detect(), task.config.train.batch_size
    plan, _ = autotune(task.plan.with_defaults(compile="off", workers=0), task.config, task.dataset, machine)
    share = with_values(task.config, {"train.batch_size": -(-batch // plan.world)})
    trials = measure_fed(share, loaders(plan, machine), task.dataset)
    best = shortest(trials, -(-len(task.dataset.train) // batch))
    if best.error:
        raise RunError(f"model {task.config.model.name} does not run: {best.error}")
    rows = [
        {
            "workers": trial.plan.workers,
            "step_ms": None if trial.error else trial.step_ms,
            "first_ms": None if trial.error else trial.first_ms,
            "samples_per_s": None if trial.error else 1000 * batch / trial.step_ms,
            "failed": trial.error,
        }
        for trial in trials
    ]
    return {"plan": str(plan), "best": {"workers": best.plan.workers}, "table": rows}
