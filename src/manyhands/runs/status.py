"""Status: how a run failed, written into its run.json; bad input leaves no run at all."""

import shutil
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from manyhands.errors import InputError, ManyhandsError, RunError
from manyhands.runs import run_folder

# What a machine may have too little of, as its system tells it, and what helps.
SCARCE = {
    "failed to map": "free some memory to load torch, or raise ulimit -v",
    "Cannot allocate memory": "free some memory, or raise ulimit -v",
    "No space left on device": "free some where the run, temporary files (TMPDIR) and shared memory (/dev/shm) lie",
    "Too many open files": "raise ulimit -n",
    "can't start new thread": "raise ulimit -u",
}


@contextmanager
def bad_input(run: run_folder.Run) -> Iterator[None]:
    """Write down bad input that a rank has found, be it not the first: the launcher ends the others, which may not have
    come so far."""
    try:
        yield
    except InputError as error:
        _mark(run, "failed", str(error), error.exit_code)
        raise


@contextmanager
def record_failure(run: run_folder.Run) -> Iterator[None]:
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
        first = (str(error).strip().splitlines() or [""])[0]
        told = _scarce(first) or _unforeseen(run, f"{type(error).__name__}: {first}")
        _mark(run, "failed", str(told), 1)
        raise told from error


def _scarce(first: str) -> RunError | None:
    """The machine's own limits, in whatever kind of error Python, torch and the system's loader tell them."""
    for words, repair in SCARCE.items():
        if words in first:
            return RunError(f"{first}: {repair}")
    return None


def _unforeseen(run: run_folder.Run, about: str) -> RunError:
    """The error that is being handled, with its traceback in the run's log."""
    with suppress(OSError), (run.folder / "log.txt").open("a") as log:
        traceback.print_exc(file=log)
    return RunError(f"{about}; the traceback is in {run.folder / 'log.txt'}")


def _mark(run: run_folder.Run, status: str, error: str, exit_code: int) -> None:
    with suppress(ManyhandsError, OSError):  # a full disk is no reason to hide what went wrong before
        run_folder.load(run.folder).update(status=status, error=error, exit_code=exit_code)


@contextmanager
def kept_if_begun(run: run_folder.Run, existed: bool) -> Iterator[None]:
    """Remove a new run whose input shows to be bad (data, model) before any step; the folder itself if we made it."""
    try:
        yield
    except InputError:
        if next(run.metrics(), None) is None:
            _remove(run.folder, keep_folder=existed)
        raise


def _remove(folder: Path, keep_folder: bool) -> None:
    if not keep_folder:
        shutil.rmtree(folder, ignore_errors=True)
        return
    for each in folder.iterdir():
        shutil.rmtree(each) if each.is_dir() else each.unlink()
