"""Run: one training from a config and a plan to a finished folder.

`begin` makes the folder, and its run.json is the whole order; `execute` carries it out in this process. So a
rank or a repeat in a fresh process needs to be told the folder alone.
"""

import json
import os
import platform
import shutil
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from manyhands.comm import launch, mpirun
from manyhands.comm.rank import Place, join, leave, place
from manyhands.data.known import KNOWN
from manyhands.errors import InputError, ManyhandsError, RankError, RunError
from manyhands.machine.detect import detect
from manyhands.machine.machine import Machine
from manyhands.machine.process import settle
from manyhands.plan.plan import Plan, from_table, to_table
from manyhands.progress import Bar, bar, logged_to
from manyhands.runs import store
from manyhands.runs.config import Config, with_values
from manyhands.runs.config import from_table as config_from_table
from manyhands.runs.early import settle_early

PACKAGES = ("manyhands", "torch", "numpy", "safetensors")


def begin(config: Config, plan: Plan, out: Path | None, command: str = "", machine: Machine | None = None) -> store.Run:
    """Check what can be checked before any work, and make the run's folder; `machine` as it was before pinning."""
    machine = machine or detect()
    plan = settle_early(plan, config, machine, place())
    config = located(config)
    label = f"{Path(config.model.name.rpartition(':')[2]).name}-{plan.name.replace(':', '').replace(',', '-')}"
    folder = store.new_folder(out, label)
    return store.create(
        folder,
        {
            "config": config.to_json(),
            "plan": to_table(plan),
            "plan_words": str(plan),
            "machine": machine.to_json(),
            "machine_words": str(machine),
            "versions": versions(),
            "command": command,
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


def execute(run: store.Run, *, resume: bool = False) -> store.Run:
    """Carry out the order: in this process, by ranks, or as a rank that another launcher has started."""
    plan = from_table(run.record["plan"], "run.json")
    if not plan.has_ranks or place() is not None:
        return work(run, resume=resume)
    with _outcome(run):
        try:
            _launch(run.update(status="running", error=None, exit_code=None), plan, resume)
        except RankError as error:
            told = store.load(run.folder).record
            if told.get("exit_code") == InputError.exit_code:  # what the first rank found out
                raise InputError(str(told["error"])) from error
            raise
    return store.load(run.folder)


def _launch(run: store.Run, plan: Plan, resume: bool) -> None:
    """Start the ranks, and show how far they are."""
    with bar(f"training on {plan.world} ranks", 100, "%") as shown, watched(run.folder, shown):
        arguments = [str(run.folder), *(["--resume"] if resume else [])]
        restarts = order_of(run).train.restarts
        if plan.backend == "mpi":
            mpirun.ranks("manyhands.runs.rank", arguments, plan.world)
        else:
            launch.ranks("manyhands.runs.rank", arguments, plan.world, restarts=restarts)


@contextmanager
def watched(folder: Path, shown: Bar) -> Iterator[None]:
    """Advance a bar from 0 to 100 as a run in other processes goes on."""
    ended, told = threading.Event(), 0.0

    def watch() -> None:
        nonlocal told
        while not ended.wait(0.5):
            share = 100 * share_done(folder)
            shown.advance(max(0.0, share - told))
            told = max(share, told)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def share_done(folder: Path) -> float:
    """How far a run is, from the last line of its metrics."""
    try:
        total = json.loads((folder / "run.json").read_text())["total_steps"]
        with (folder / "metrics.jsonl").open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - 400))
            return float(json.loads(file.read().splitlines()[-1])["step"] / total)
    except (OSError, ValueError, KeyError, IndexError):
        return 0.0


def work(run: store.Run, *, resume: bool = False) -> store.Run:
    """Carry out the order as this process's part of it: alone, or as one rank."""
    started, mine = time.perf_counter(), place()
    plan = from_table(run.record["plan"], "run.json")
    rank = mine.rank if mine and plan.has_ranks else 0
    with logged_to(run.folder / "log.txt" if rank == 0 else Path(os.devnull)), _outcome(run, writes=rank == 0):
        enter(plan, order_of(run), mine)
        from manyhands.comm.late import named
        from manyhands.engine.team import Team
        from manyhands.runs.training import train

        team = Team(rank, plan.world)
        about = {"rank": rank, "pid": os.getpid(), "host": platform.node(), "cores": sorted(os.sched_getaffinity(0))}
        everyone = team.gathered(about)
        if rank == 0:
            run = run.update(status="running", ranks=everyone, error=None, exit_code=None)
        try:
            result = train(run, order_of(run), plan, team, resume=resume, started=started)
        except RuntimeError as error:
            raise named(error, order_of(run).train.timeout) or error from error
        leave()
    return store.load(run.folder).update(status="finished", result=result) if rank == 0 else run


def enter(plan: Plan, config: Config, here: Place | None) -> None:
    """Settle this process on its cores; then, and only then, import torch and meet the other ranks."""
    local = here.local_rank if here and plan.has_ranks else 0
    settle(threads=plan.threads, cores=plan.cores[local] if plan.cores else None, allocator=plan.allocator or "default")
    import torch

    if plan.has_ranks:
        assert here is not None
        if plan.device == "cuda" and torch.cuda.is_available():
            torch.cuda.set_device(local)
        join(here, plan.backend or "gloo", config.train.timeout)


def order_of(run: store.Run) -> Config:
    return config_from_table(run.record["config"], str(run.folder / "run.json"))


@contextmanager
def _outcome(run: store.Run, writes: bool = True) -> Iterator[None]:
    """Write down how the block failed, if it did."""
    if not writes:
        yield
        return
    try:
        yield
    except ManyhandsError as error:
        _mark(run, "failed", str(error), error.exit_code)
        raise
    except KeyboardInterrupt:
        _mark(run, "interrupted", "interrupted", 130)
        raise
    except Exception as error:
        with suppress(OSError), (run.folder / "log.txt").open("a") as log:
            traceback.print_exc(file=log)
        first = (str(error).strip().splitlines() or [""])[0]
        told = RunError(f"{type(error).__name__}: {first}; the traceback is in {run.folder / 'log.txt'}")
        _mark(run, "failed", str(told), 1)
        raise told from error


def _mark(run: store.Run, status: str, error: str, exit_code: int) -> None:
    with suppress(ManyhandsError, OSError):  # a full disk is no reason to hide what went wrong before
        store.load(run.folder).update(status=status, error=error, exit_code=exit_code)


def train_new(config: Config, plan: Plan, out: Path | None, command: str = "") -> store.Run:
    """Begin and execute; bad input that shows only later (data, model) leaves no folder behind."""
    here, existed = place(), out is not None and out.exists()
    if here is not None and plan.has_ranks:
        return _join_new(config, plan, out, command, here)
    run = begin(config, plan, out, command)
    try:
        return execute(run)
    except InputError:
        if next(run.metrics(), None) is None:  # no step was done
            _remove(run.folder, keep_folder=existed)
        raise


def _join_new(config: Config, plan: Plan, out: Path | None, command: str, here: Place) -> store.Run:
    """As one of the ranks that another launcher has started: the first makes the folder and tells it the others."""
    machine = detect()
    plan = settle_early(plan, config, machine, here)
    enter(plan, config, here)
    from manyhands.engine.team import Team

    team, made = Team(here.rank, here.world), None  # type: tuple[Team, Path | InputError | None]
    if team.leads:
        try:
            again = here.restarts > 0 and out is not None and (out / "run.json").exists()
            made = out if again else begin(config, plan, out, command, machine).folder
        except InputError as error:
            made = error
    made = team.told(made)
    if isinstance(made, InputError):
        raise made
    return work(store.load(made), resume=here.restarts > 0)


def _remove(folder: Path, keep_folder: bool) -> None:
    if not keep_folder:
        shutil.rmtree(folder, ignore_errors=True)
        return
    for each in folder.iterdir():
        shutil.rmtree(each) if each.is_dir() else each.unlink()


def resume(folder: Path) -> store.Run:
    """Go on with a run from its newest intact checkpoint."""
    run = store.load(folder)
    if run.status == "finished":
        raise InputError(f"run {folder} has finished: nothing is left to do; train a new one for more epochs")
    return execute(run, resume=True)


def leads() -> bool:
    """Whether this process speaks for the ranks among which another launcher has started it."""
    here = place()
    return here is None or here.rank == 0


def as_json(run: store.Run) -> dict[str, Any]:
    """What `train --json` prints."""
    assert run.result is not None
    return run.result
