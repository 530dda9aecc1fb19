"""API: the Python entry points, and `start`, which turns an order into a finished run for the command line as well."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from manyhands.comm.launch.fresh_process import in_fresh_process
from manyhands.comm.ranks.rank_info import is_leader, place
from manyhands.config import Config, located, with_values
from manyhands.errors import InputError, ModelError, PlanError, RunError
from manyhands.machine.detect import detect
from manyhands.plan.plan import Plan
from manyhands.plan.spec import parse
from manyhands.progress import bar, logged_to, say
from manyhands.runs import run_folder
from manyhands.runs.status import kept_if_begun
from manyhands.train.create import begin
from manyhands.train.launch import execute, join_ranks, progress_shown
from manyhands.train.plan_constraints import resolve
from manyhands.tune.plan.complete import completed

PREDICTED = "predicted.json"  # the predicted timeline of a step, beside the measured timeline.json


def start(config: Config, plan: Plan, out: Path | None, command: str = "") -> run_folder.Run:
    """Train to a finished run: finds the plan, the batch size and the balance of stages where these are left open."""
    return _search_and_train(config, plan, out, command) if is_auto(plan) else _train(config, plan, out, command)


def _train(config: Config, plan: Plan, out: Path | None, command: str) -> run_folder.Run:
    """Begin and execute; bad input that shows only later (data, model) leaves no folder behind."""
    here, existed = place(), out is not None and out.exists()
    if config.loader.workers and not plan.is_baseline and plan.feed != "loader" and is_leader():
        say(f"loader.workers={config.loader.workers} is not used by plan {plan.name}: say feed=loader to have a loader")
    config, picked = _with_batch(config, plan)
    if here is None or not plan.has_ranks:
        run = _tell_batch(begin(config, completed(plan, config), out, command), picked)
        with kept_if_begun(run, existed):
            return execute(run)
    machine, again = detect(), here.restarts > 0

    def begun() -> run_folder.Run:
        if again and out is not None and (out / "run.json").exists():
            return run_folder.load(out)
        return begin(config, completed(plan, config, machine), out, command, machine)

    return join_ranks(begun, config, resolve(plan, config, machine, here), here, resume=again, existed=existed)


def _with_batch(config: Config, plan: Plan) -> tuple[Config, dict[str, Any] | None]:
    """The config with a batch size, and, where it had to be found, how."""
    if not config.train.batch_auto:
        return config, None
    from manyhands.tune.auto_batch_size import pick

    return pick(config, plan)


def _tell_batch(run: run_folder.Run, picked: dict[str, Any] | None) -> run_folder.Run:
    """Write down how the batch size was found, where it was."""
    if picked is None:
        return run
    with logged_to(run.folder / "log.txt"):
        say(picked["why"])
    return run.update(batch=picked)


def is_auto(plan: Plan) -> bool:
    return plan.axes[0].name == "auto"


def resolved(plan: Plan, config: Config) -> Plan:
    """The plan itself, or the one that is found where it says auto."""
    if not is_auto(plan):
        return plan
    from manyhands.tune.plan.choose import search_plan  # numba comes in here

    return search_plan(plan, located(config), detect()).best.plan


def _search_and_train(config: Config, plan: Plan, out: Path | None, command: str) -> run_folder.Run:
    """Search, and train in processes that the search has not touched."""
    from manyhands.tune.plan.choose import search_plan, timeline_of  # numba comes in here

    if place() is not None:
        raise PlanError("plan auto lays out the processes itself: call manyhands without torchrun, mpirun or srun")
    machine, existed = detect(), out is not None and out.exists()
    config, picked = _with_batch(located(config), plan)
    answer = search_plan(plan, config, machine)
    say(f"found {answer.best.plan.label} in {answer.seconds:.0f} s{' some time ago' if answer.known else ''}")
    run = begin(config, completed(answer.best.plan, config, machine), out, command, machine).update(
        search=answer.to_json()
    )
    run = _tell_batch(run, picked)
    if (predicted := timeline_of(plan, config, machine)).exists():
        shutil.copyfile(predicted, run.folder / PREDICTED)
    with kept_if_begun(run, existed):
        return execute(run) if answer.best.plan.has_ranks else _alone(run)


def _alone(run: run_folder.Run) -> run_folder.Run:
    """In a fresh process: this one has imported torch before it could settle."""
    with bar("training", 100, "%") as shown, progress_shown(run.folder, shown):
        code, errors = in_fresh_process("manyhands.train.worker", str(run.folder))
    run = run_folder.load(run.folder)
    if run.status == "finished":
        return run
    told = run.record.get("error") or (errors.strip().splitlines() or [f"exit code {code}"])[-1]
    if run.record.get("exit_code") == InputError.exit_code:
        raise InputError(str(told))
    raise RunError(str(told))


def fit(
    model: str | Callable[..., Any],
    data: str = "digits",
    plan: str | Plan = "serial",
    epochs: int = 3,
    batch_size: int | str = 256,
    seed: int = 0,
    out: str | Path | None = None,
    **settings: Any,
) -> run_folder.Run:
    """Train, and give the finished run; its `result` is what `manyhands train --json` prints.

    `model` is a zoo name or a function at the top level of a module. Further settings are config keys with
    a double underscore for the dot: `fit("mlp", optim__lr=0.01)`.
    """
    config = _config(model, data, batch_size, {"train.epochs": epochs, "train.seed": seed}, settings)
    chosen = parse(plan) if isinstance(plan, str) else plan
    return start(config, chosen, Path(out) if out is not None else None)


def find_plan(
    model: str | Callable[..., Any], data: str = "digits", batch_size: int = 256, plan: str = "auto", **settings: Any
) -> Plan:
    """The fastest plan for this machine, searched and measured; `plan` may fix some of it: `auto,precision=fp32`."""
    return resolved(parse(plan), _config(model, data, batch_size, {}, settings))


def _config(
    model: str | Callable[..., Any], data: str, batch_size: int | str, named: dict[str, Any], settings: dict[str, Any]
) -> Config:
    keys = {key.replace("__", ".", 1): value for key, value in settings.items()}
    name = model if isinstance(model, str) else _path_of(model)
    return with_values(
        Config(), {"model.name": name, "data.name": data, "train.batch_size": batch_size, **named, **keys}
    )


def _path_of(factory: Callable[..., Any]) -> str:
    """How another process, or a later `predict`, finds the same function again."""
    name = getattr(factory, "__qualname__", "")
    file = getattr(getattr(factory, "__code__", None), "co_filename", "")
    if not name.isidentifier() or not Path(file).is_file():
        raise ModelError(f"model {factory!r} cannot be found again by name: give a function at the top level of a file")
    return f"{Path(file).resolve()}:{name}"
