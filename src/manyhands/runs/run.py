"""Run: one training from a config and a plan to a finished folder.

`begin` makes the folder, and its run.json is the whole order; `execute` carries it out in this process. So a
rank or a repeat in a fresh process needs to be told the folder alone.
"""

import os
import platform
import shutil
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from manyhands.data.known import KNOWN
from manyhands.errors import InputError, ManyhandsError, RunError
from manyhands.machine.detect import detect
from manyhands.machine.process import settle
from manyhands.plan.plan import Plan, from_table, to_table
from manyhands.progress import logged_to
from manyhands.runs import store
from manyhands.runs.config import Config, with_values
from manyhands.runs.config import from_table as config_from_table
from manyhands.runs.early import settle_early

PACKAGES = ("manyhands", "torch", "numpy", "safetensors")


def begin(config: Config, plan: Plan, out: Path | None, command: str = "") -> store.Run:
    """Check what can be checked before any work, and make the run's folder."""
    machine = detect()
    plan = settle_early(plan, config, machine)
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
    """Carry out the order in this process; the folder's status tells how it ended."""
    started = time.perf_counter()
    with logged_to(run.folder / "log.txt"), _outcome(run):
        plan = from_table(run.record["plan"], "run.json")
        cores = plan.cores[0] if plan.cores else None
        settle(threads=plan.threads, cores=cores, allocator=plan.allocator or "default")
        from manyhands.runs.training import train  # torch comes in here, after the process has settled

        ranks = [{"rank": 0, "pid": os.getpid(), "host": platform.node(), "cores": sorted(os.sched_getaffinity(0))}]
        run = run.update(status="running", ranks=ranks, error=None, exit_code=None)
        result = train(run, order_of(run), plan, resume=resume, started=started)
    return store.load(run.folder).update(status="finished", result=result)


def order_of(run: store.Run) -> Config:
    return config_from_table(run.record["config"], str(run.folder / "run.json"))


@contextmanager
def _outcome(run: store.Run) -> Iterator[None]:
    """Write down how the block failed, if it did."""
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
    existed = out is not None and out.exists()
    run = begin(config, plan, out, command)
    try:
        return execute(run)
    except InputError:
        if next(run.metrics(), None) is None:  # no step was done
            _remove(run.folder, keep_folder=existed)
        raise


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


def as_json(run: store.Run) -> dict[str, Any]:
    """What `train --json` prints."""
    assert run.result is not None
    return run.result
