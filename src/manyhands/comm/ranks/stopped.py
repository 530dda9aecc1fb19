"""Stopped: ranks that somebody has stopped (SIGSTOP) and not let go on are ended, so that a run does not hang.

Who waits for a stopped rank notices by itself. Nobody would where it is alone at its work, as the first rank is at the
end of a training.
"""

import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from manyhands.errors import RankError, RunError
from manyhands.progress import looking

LOOK = 1.0  # seconds between two looks
GRACE = 15.0  # seconds in which those that wait for a rank are the ones to tell
MEASURING = 30.0  # seconds for a process that measures: what it measures would be of no use


@contextmanager
def ended_when_stopped(seconds: float) -> Iterator[None]:
    """End what this process has started, in the block, once it has been stopped for so long; the error says which."""
    looks: Counter[int] = Counter()
    ended: list[str] = []

    def look() -> None:
        for pid in _descendants(os.getpid()):
            looks[pid] = looks[pid] + 1 if is_stopped(pid) else 0
            if looks[pid] * LOOK > seconds:
                ended.append(_name(pid))
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    try:
        with looking(look, LOOK):
            yield
    except RunError as error:
        if not ended:
            raise
        raise RankError(f"{ended[0]} was stopped (SIGSTOP) for more than {seconds:g} s: let it go on sooner") from error


def _descendants(pid: int) -> list[int]:
    """None where this is no Linux."""
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found += [int(each) for each in path.read_text().split()]
    return found + [deeper for each in found for deeper in _descendants(each)]


def is_stopped(pid: int) -> bool:
    """Whether a process of this host was stopped by a signal; a debugger is another matter."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except OSError:
        return False


def _name(pid: int) -> str:
    """The rank that a process is, else its program."""
    with suppress(OSError):
        environment = dict(
            each.partition("=")[::2] for each in Path(f"/proc/{pid}/environ").read_text(errors="replace").split("\0")
        )
        if rank := environment.get("RANK", environment.get("PMI_RANK")):
            return f"rank {rank}"
        return f"process {pid} ({Path(f'/proc/{pid}/comm').read_text().strip()})"
    return f"process {pid}"
