"""api: TODO."""

from pathlib import Path
from typing import Any

from manyhands.comm.ranks.rank_info import place
from manyhands.config import Config
from manyhands.machine.detect import detect
from manyhands.plan.plan import Plan
from manyhands.progress import logged_to, say
from manyhands.runs import run_folder
from manyhands.runs.status import kept_if_begun
from manyhands.train.create import begin
from manyhands.train.launch import execute, join_ranks, leads
from manyhands.train.plan_constraints import settle_early
from manyhands.tune.plan.complete import completed


def train_new(config: Config, plan: Plan, out: Path | None, command: str = "") -> run_folder.Run:
    """Begin and execute; bad input that shows only later (data, model) leaves no folder behind."""
    here, existed = place(), out is not None and out.exists()
    if config.loader.workers and not plan.is_baseline and plan.feed != "loader" and leads():
        say(f"loader.workers={config.loader.workers} is not used by plan {plan.name}: say feed=loader to have a loader")
    config, picked = with_batch(config, plan)
    if here is None or not plan.has_ranks:
        run = tell_batch(begin(config, completed(plan, config), out, command), picked)
        with kept_if_begun(run, existed):
            return execute(run)
    machine, again = detect(), here.restarts > 0

    def begun() -> run_folder.Run:
        if again and out is not None and (out / "run.json").exists():
            return run_folder.load(out)
        return begin(config, completed(plan, config, machine), out, command, machine)

    return join_ranks(begun, config, settle_early(plan, config, machine, here), here, resume=again, existed=existed)


def with_batch(config: Config, plan: Plan) -> tuple[Config, dict[str, Any] | None]:
    """The config with a batch size, and, where it had to be found, how."""
    if not config.train.batch_auto:
        return config, None
    from manyhands.tune.auto_batch_size import pick

    return pick(config, plan)


def tell_batch(run: run_folder.Run, picked: dict[str, Any] | None) -> run_folder.Run:
    """Write down how the batch size was found, where it was."""
    if picked is None:
        return run
    with logged_to(run.folder / "log.txt"):
        say(picked["why"])
    return run.update(batch=picked)
