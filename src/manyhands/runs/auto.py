"""Auto: find the fastest plan, then train with it."""

import shutil
from pathlib import Path

from manyhands import api
from manyhands import config as config_module
from manyhands.comm.launch.fresh_process import in_fresh_process
from manyhands.comm.ranks.rank_info import place
from manyhands.config import Config
from manyhands.errors import InputError, PlanError, RunError
from manyhands.machine.detect import detect
from manyhands.plan.plan import Plan
from manyhands.progress import bar, say
from manyhands.runs import run_folder
from manyhands.runs.status import kept_if_begun
from manyhands.train import create
from manyhands.train import launch as runs
from manyhands.tune.plan.complete import completed

PREDICTED = "predicted.json"  # the predicted timeline of a step, beside the measured timeline.json


def is_auto(plan: Plan) -> bool:
    return plan.axes[0].name == "auto"


def resolved(plan: Plan, config: Config) -> Plan:
    """The plan itself, or the one that is found where it says auto."""
    if not is_auto(plan):
        return plan
    from manyhands.tune.plan.choose import find  # numba comes in here

    return find(plan, config_module.located(config), detect()).best.plan


def train(config: Config, plan: Plan, out: Path | None, command: str = "") -> run_folder.Run:
    """Search, and train in processes that the search has not touched."""
    from manyhands.tune.plan.choose import find, timeline_of  # numba comes in here

    if place() is not None:
        raise PlanError("plan auto lays out the processes itself: call manyhands without torchrun, mpirun or srun")
    machine, existed = detect(), out is not None and out.exists()
    config, picked = api.with_batch(config_module.located(config), plan)
    answer = find(plan, config, machine)
    say(f"found {answer.best.plan.label} in {answer.seconds:.0f} s{' some time ago' if answer.known else ''}")
    run = create.begin(config, completed(answer.best.plan, config, machine), out, command, machine).update(
        search=answer.to_json()
    )
    run = api.tell_batch(run, picked)
    if (predicted := timeline_of(plan, config, machine)).exists():
        shutil.copyfile(predicted, run.folder / PREDICTED)
    with kept_if_begun(run, existed):
        return runs.execute(run) if answer.best.plan.has_ranks else _alone(run)


def _alone(run: run_folder.Run) -> run_folder.Run:
    """In a fresh process: this one has imported torch before it could settle."""
    with bar("training", 100, "%") as shown, runs.watched(run.folder, shown):
        code, errors = in_fresh_process("manyhands.train.worker", str(run.folder))
    run = run_folder.load(run.folder)
    if run.status == "finished":
        return run
    told = run.record.get("error") or (errors.strip().splitlines() or [f"exit code {code}"])[-1]
    if run.record.get("exit_code") == InputError.exit_code:
        raise InputError(str(told))
    raise RunError(str(told))
