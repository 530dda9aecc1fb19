"""Bootstrap: the first code of a rank: dies with its parent, redirects output, and tells why it failed."""

import atexit
import ctypes
import os
import runpy
import select
import signal
import sys
import threading
import traceback
from pathlib import Path

from manyhands.comm.ranks.rank_info import LAUNCHER, PARENT, SHOWN, place
from manyhands.comm.ranks.status_files import NOTES, ended, note, peer_exited
from manyhands.errors import ManyhandsError

PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Have the kernel kill this process when the one that started it ends, however that ends."""
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    parent = os.environ.get(PARENT)
    if parent is not None and os.getppid() != int(parent):
        os.kill(os.getpid(), signal.SIGKILL)


def die_with(process: int) -> None:
    """End this process when another one does, of which it is no child."""
    if not sys.platform.startswith("linux"):
        return
    try:
        end = os.pidfd_open(process)
    except ProcessLookupError:
        os.kill(os.getpid(), signal.SIGKILL)

    def watch() -> None:
        select.select([end], [], [])
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="launcher", daemon=True).start()


def _about(error: Exception) -> str:
    """One line; our own errors need no name."""
    name, lines, here = type(error).__name__, str(error).strip().splitlines(), place()
    if "by peer" in str(error) and here and (gone := ended(here.world)):  # as gloo tells that a rank closed its end
        return str(peer_exited(gone, here.rank, "a collective"))
    if not lines:
        return name
    return lines[0] if isinstance(error, ManyhandsError) else f"{name}: {lines[0]}"


def _hush() -> None:
    """Keep what this rank says from the terminal, unless it is the first."""
    if os.environ.get(SHOWN) and (here := place()) and here.rank > 0:
        kept = os.open(Path(os.environ[NOTES], f"{here.rank}.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(kept, 2)


def main() -> None:
    die_with_parent()
    os.environ.pop(PARENT, None)  # processes that this one starts have another parent
    if launcher := os.environ.get(LAUNCHER):
        die_with(int(launcher))
    _hush()
    note("process", str(os.getpid()))
    del sys.argv[0]
    try:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        note("done", "")
    except SystemExit as end:
        if end.code and isinstance(end.code, int):
            _fail(end.code, f"exit code {end.code}")
        elif not end.code:
            note("done", "")
        else:  # as Python has it: anything else is what to say
            print(end.code, file=sys.stderr)
            _fail(1, str(end.code))
    except Exception as error:
        traceback.print_exc()
        _fail(1, _about(error))


def _fail(code: int, why: str) -> None:
    note("error", why)
    end_now(code)


def done() -> None:
    """End a rank of ours that has finished, when all that was to happen at the end has.

    What of a group still lives when Python takes itself down may abort the process (see `leave`), which then counts as
    killed. MPI takes itself down after all that, and its launcher waits for it.
    """
    note("done", "")
    if "mpi4py.MPI" in sys.modules:
        return
    atexit._run_exitfuncs()
    end_now(0)


def end_now(code: int) -> None:
    """End a rank that has failed: taking a group down while others wait in it aborts, or hangs, and hides the error."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code & 0xFF)


if __name__ == "__main__":
    main()
