"""Lock: one process at a time trains in a run's folder, until the run has finished."""

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import psutil

from manyhands.errors import InputError, StorageError
from manyhands.files import locked
from manyhands.runs import run_folder

LOCK = ".lock"
PATIENCE = 10.0  # seconds in which the loader processes of a training that was killed notice it


@contextmanager
def held(run: run_folder.Run) -> Iterator[run_folder.Run]:
    """Keep all others from training in the folder; the kernel lets go of it when this process ends, however."""
    with ExitStack() as stack:
        deadline = time.monotonic() + PATIENCE
        while not _taken(run, stack):
            process = run_folder.load(run.folder).record.get("process")
            if (isinstance(process, int) and psutil.pid_exists(process)) or time.monotonic() > deadline:
                raise InputError(
                    f"{run.folder} is still being trained (process {process}): wait for it, or end it first"
                )
            time.sleep(0.2)
        run = run_folder.load(run.folder)  # as the process before has left it
        if run.status == "finished":
            raise InputError(f"run {run.folder} has finished: nothing is left to do; train a new one for more epochs")
        yield run.update(process=os.getpid())


def _taken(run: run_folder.Run, stack: ExitStack) -> bool:
    try:
        stack.enter_context(locked(run.folder / LOCK, wait=False))
    except StorageError as error:
        if isinstance(error.__context__, BlockingIOError):
            return False
        raise
    return True
