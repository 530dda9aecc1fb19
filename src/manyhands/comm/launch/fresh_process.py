"""Fresh process: runs one module in a new interpreter and passes signals on to it."""

import contextlib
import os
import signal
import subprocess
import sys
import time

from manyhands.comm.launch.elastic import ASKED
from manyhands.comm.ranks.rank_info import PARENT


def in_fresh_process(module: str, *arguments: str) -> tuple[int, str]:
    """Run `python -m module arguments…` to its end; gives the exit code and the end of its standard error.

    A fresh process is the only like-for-like one: allocator, threads and caches of an earlier training stay
    behind. When this process is interrupted, the child goes first; when it is killed, the child goes too.
    """
    command = [sys.executable, "-m", "manyhands.comm.launch.bootstrap", module, *arguments]
    told = {**os.environ, PARENT: str(os.getpid())}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=told) as child:
        try:
            _, errors = child.communicate()
            return child.returncode, errors[-2000:]
        except BaseException:
            _stop(child)
            raise


def _stop(child: "subprocess.Popen[str]") -> None:
    """Ask, wait a moment, then insist."""
    for ask, patience in ((signal.SIGINT, ASKED), (signal.SIGKILL, 3.0)):
        with contextlib.suppress(ProcessLookupError):
            child.send_signal(ask)
        deadline = time.monotonic() + patience
        while child.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
