"""Run: one training from a config and a plan to a finished folder.

`begin` makes the folder, and its run.json is the whole order; `execute` carries it out in this process. So a
rank or a repeat in a fresh process needs to be told the folder alone.
"""

import json
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from manyhands.comm.launch import elastic, mpirun
from manyhands.comm.ranks.rank_info import Place, place
from manyhands.comm.ranks.stopped import GRACE, ended_when_stopped
from manyhands.comm.rendezvous import join, leave
from manyhands.config import Config, with_values
from manyhands.config import from_table as config_from_table
from manyhands.data.known import KNOWN
from manyhands.errors import ConfigError, InputError, RankError
from manyhands.machine.detect import detect
from manyhands.machine.machine import Machine
from manyhands.machine.process import settle
from manyhands.plan.plan import Plan, from_table, to_table
from manyhands.progress import Bar, bar, logged_to, looking, say
from manyhands.runs import run_folder
from manyhands.runs.changed import SOURCE, check_code, source_hash
from manyhands.runs.complete import completed
from manyhands.runs.early import settle_early
from manyhands.runs.lock import held
from manyhands.runs.status import bad_input, kept_if_begun, outcome

PACKAGES = ("manyhands", "torch", "numpy", "numba", "safetensors")


def begin(
    config: Config, plan: Plan, out: Path | None, command: str = "", machine: Machine | None = None
) -> run_folder.Run:
    """Check what can be checked before any work, and make the run's folder; `machine` as it was before pinning."""
    if config.train.batch_auto:
        raise ConfigError("train.batch_size=auto is for one training, by `manyhands train`: give a number")
    machine = machine or detect()
    plan = settle_early(plan, config, machine, place())
    config = located(config)
    label = f"{Path(config.model.name.rpartition(':')[2]).name}-{plan.name.replace(':', '').replace(',', '-')}"
    folder = run_folder.new_folder(out, label)
    return run_folder.create(
        folder,
        {
            "config": config.to_json(),
            "plan": to_table(plan),
            "plan_words": str(plan),
            "machine": machine.to_json(),
            "machine_words": str(machine),
            "versions": versions(),
            "command": command,
            SOURCE: source_hash(config.model.name),
        },
    )


def located(config: Config) -> Config:
    """Paths made absolute: `predict` and `--resume` may be called from another folder."""
    model, colon, factory = config.model.name.rpartition(":")
    places: dict[str, Any] = {}
    if model.endswith(".py"):
        places["model.name"] = f"{Path(model).expanduser().resolve()}{colon}{factory}"
    if config.data.name not in KNOWN and Path(config.data.name).expanduser().exists():
        places["data.name"] = str(Path(config.data.name).expanduser().resolve())
    if config.model.init_from and Path(config.model.init_from).expanduser().exists():
        places["model.init_from"] = str(Path(config.model.init_from).expanduser().resolve())
    return with_values(config, places)


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def execute(run: run_folder.Run, *, resume: bool = False) -> run_folder.Run:
    """Carry out the order: in this process, by ranks, or as a rank that another launcher has started."""
    with held(run) as run:
        plan = from_table(run.record["plan"], "run.json")
        if not plan.has_ranks or plan.is_conducted or place() is not None:
            return work(run, resume=resume)
        with outcome(run):
            try:
                _launch(run.update(status="running", error=None, exit_code=None), plan, resume)
            except RankError as error:
                told = run_folder.load(run.folder).record
                if told.get("exit_code") == InputError.exit_code:  # what a rank found out
                    raise InputError(str(told["error"])) from error
                raise
        return run_folder.load(run.folder)


def _launch(run: run_folder.Run, plan: Plan, resume: bool) -> None:
    """Start the ranks, and show how far they are."""
    arguments = [str(run.folder), *(["--resume"] if resume else [])]
    ranks, order = mpirun.ranks if plan.backend == "mpi" else elastic.ranks, order_of(run).train
    with (
        bar(f"training on {plan.world} ranks", 100, "%") as shown,
        watched(run.folder, shown),
        ended_when_stopped(order.timeout + GRACE),
    ):
        ranks("manyhands.runs.rank", arguments, plan.world, restarts=order.restarts)


@contextmanager
def watched(folder: Path, shown: Bar) -> Iterator[None]:
    """Advance a bar from 0 to 100 as a run in other processes goes on."""
    told = 0.0

    def look() -> None:
        nonlocal told
        share = 100 * share_done(folder)
        shown.advance(max(0.0, share - told))
        told = max(share, told)

    with looking(look, 0.5):
        yield


def share_done(folder: Path) -> float:
    """How far a run is, from the last line of its metrics."""
    try:
        total = json.loads((folder / "run.json").read_text())["total_steps"]
        with (folder / "metrics.jsonl").open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - 400))
            return float(json.loads(file.read().splitlines()[-1])["step"] / total)
    except (OSError, ValueError, KeyError, IndexError):
        return 0.0


def work(run: run_folder.Run, *, resume: bool = False, entered: bool = False) -> run_folder.Run:
    """Carry out the order as this process's part of it: alone, or as one rank.

    One that has `entered` is on cores of its own host already, which need not have the numbers of the first one's.
    """
    started, mine = time.perf_counter(), place()
    plan = from_table(run.record["plan"], "run.json")
    rank = mine.rank if mine and plan.has_ranks else 0
    # Of ranks that another launcher has started the first tells the others what is bad, and clears up behind it.
    watch = outcome if rank == 0 else bad_input if not entered else nullcontext
    with logged_to(run.folder / "log.txt" if rank == 0 else Path(os.devnull)), watch(run):
        if not entered:
            enter(plan, order_of(run), mine)
        from manyhands.comm.ranks.rank_group import Team
        from manyhands.comm.ranks.timeouts import named
        from manyhands.runs.training import train

        team = Team() if plan.is_conducted else Team(rank, plan.world)
        about = {"rank": rank, "pid": os.getpid(), "host": platform.node(), "cores": sorted(os.sched_getaffinity(0))}
        everyone = team.gathered(about)
        if rank == 0:
            run = run.update(status="running", ranks=everyone, error=None, exit_code=None)
        try:
            result = train(run, order_of(run), plan, team, resume=resume, started=started)
        except RuntimeError as error:
            raise named(error, order_of(run).train.timeout) or error from error
        leave()
    return run_folder.load(run.folder).update(status="finished", result=result) if rank == 0 else run


def enter(plan: Plan, config: Config, here: Place | None) -> None:
    """Settle this process on its cores; then, and only then, import torch and meet the other ranks."""
    local = here.local_rank if here and plan.has_ranks else 0
    cores = plan.cores[local] if plan.cores and not plan.is_conducted else None  # a conductor is none of the ranks
    settle(threads=plan.threads, cores=cores, allocator=plan.allocator or "default")
    import torch

    if plan.has_ranks and not plan.is_conducted:
        assert here is not None
        if plan.device == "cuda" and torch.cuda.is_available():
            torch.cuda.set_device(local % torch.cuda.device_count())  # ranks with layers in parts may share one
        join(here, plan.backend or "gloo", config.train.timeout)


def order_of(run: run_folder.Run) -> Config:
    if "config" not in run.record:
        raise InputError(f"{run.folder / 'run.json'} has no config: it was damaged or made by another program")
    return config_from_table(run.record["config"], str(run.folder / "run.json"))


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

    return _join(begun, config, settle_early(plan, config, machine, here), here, resume=again, existed=existed)


def with_batch(config: Config, plan: Plan) -> tuple[Config, dict[str, Any] | None]:
    """The config with a batch size, and, where it had to be found, how."""
    if not config.train.batch_auto:
        return config, None
    from manyhands.runs.tune.pick import pick

    return pick(config, plan)


def tell_batch(run: run_folder.Run, picked: dict[str, Any] | None) -> run_folder.Run:
    """Write down how the batch size was found, where it was."""
    if picked is None:
        return run
    with logged_to(run.folder / "log.txt"):
        say(picked["why"])
    return run.update(batch=picked)


def _join(
    begun: Callable[[], run_folder.Run], config: Config, plan: Plan, here: Place, *, resume: bool, existed: bool = True
) -> run_folder.Run:
    """As one of the ranks that another launcher has started: the first begins the run and tells it the others."""
    enter(plan, config, here)
    from manyhands.comm.ranks.rank_group import Team
    from manyhands.runs.alike import alike

    team, run, refused = Team(here.rank, here.world), None, None
    alike(
        team,
        {
            "versions": {name: each for name, each in versions().items() if name in ("manyhands", "torch")},
            "plan": str(replace(plan, cores=None, threads=None)),
            "config": located(config).to_json(),
            "code of the model": source_hash(config.model.name),
        },
    )
    with ExitStack() as stack:
        if team.leads:
            try:
                run = stack.enter_context(held(begun()))
                if not resume:
                    stack.enter_context(kept_if_begun(run, existed))
            except InputError as error:
                refused = error
        told = {"refused": str(refused)} if refused else {"folder": run.folder, "record": run.record} if run else None
        told = team.told(told)
        if "refused" in told:
            raise refused or InputError(told["refused"])
        return work(run_folder.Run(told["folder"], told["record"]), resume=resume, entered=True)


def resume(folder: Path, *, changed_code: bool = False) -> run_folder.Run:
    """Go on with a run from its newest intact checkpoint; `changed_code`: though its model's code is another one."""
    run, here = run_folder.load(folder), place()
    if leads():
        check_code(run, allowed=changed_code)
    if here is None:
        return execute(run, resume=True)
    config, plan = order_of(run), from_table(run.record["plan"], "run.json")
    return _join(lambda: run, config, settle_early(plan, config, detect(), here), here, resume=True)


def leads() -> bool:
    """Whether this process speaks for the ranks among which another launcher has started it."""
    here = place()
    return here is None or here.rank == 0


def as_json(run: run_folder.Run) -> dict[str, Any]:
    """What `train --json` prints."""
    assert run.result is not None
    return run.result
