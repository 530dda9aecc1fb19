"""Launch: start work in processes of its own."""

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable


def in_fresh_process(module: str, *arguments: str, poll: Callable[[], None] = lambda: None) -> tuple[int, str]:
    """Run `python -m module arguments…` to its end; gives the exit code and the end of its standard error.

    A fresh process is the only like-for-like one: allocator, threads and caches of an earlier training stay
    behind. `poll` is called twice a second. When this process is interrupted, the child goes first.
    """
    command = [sys.executable, "-m", module, *arguments]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as child:
        try:
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    _, errors = child.communicate(timeout=0.5)
                    return child.returncode, errors[-2000:]
                poll()
        except BaseException:
            _stop(child)
            raise


def _stop(child: "subprocess.Popen[str]") -> None:
    """Ask, wait a moment, then insist."""
    for ask in (signal.SIGINT, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            child.send_signal(ask)
        deadline = time.monotonic() + 3
        while child.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
