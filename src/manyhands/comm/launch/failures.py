"""Failures: which rank failed first, and what it wrote about it."""

import re
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PREFIX = re.compile(r"^(\[rank\d+\]: ?)?(manyhands\.errors\.\w+: )?")
TAIL = 50  # lines of a rank's log that are shown when it fails


def show_log(folder: Path, rank: int) -> None:
    """The end of what a rank other than the first, one that speaks itself, has said of its errors."""
    if (log := folder / f"{rank}.log").exists():
        for line in log.read_text(errors="replace").splitlines()[-TAIL:]:
            print(line, file=sys.stderr, flush=True)


def _errors(rank: int, folder: Path) -> Path | None:
    """The file that says why a rank failed: its note, else what it printed last, unless that was shown."""
    notes = list(folder.glob(f"{rank}.error"))
    logs = [*folder.glob(f"{rank}.log"), *folder.glob(f"*/attempt_*/{rank}/stderr.log")]
    return max(notes or logs, key=lambda path: path.stat().st_mtime_ns, default=None)


def first_failed(failures: Mapping[int, Any], folder: Path) -> int:
    """The rank that failed first, of those that the agent found and those that it then ended itself."""

    def wrote(rank: int) -> int:
        path = _errors(rank, folder)
        return path.stat().st_mtime_ns if path else 0

    first = min(failure.timestamp for failure in failures.values())
    # The agent's clock counts whole seconds, in which others fail for want of the first: a rank that was killed
    # has caused that; else the one that wrote its error first.
    order = {
        rank: (
            failure.exitcode == -signal.SIGTERM or failure.timestamp > first + 1,
            failure.exitcode > 0,
            wrote(rank),
        )
        for rank, failure in failures.items()
    }
    return min(order, key=lambda rank: order[rank])


def failure(rank: int, code: int, folder: Path) -> str:
    """One line about it."""
    if code < 0:
        return f"rank {rank} was killed (signal {-code})"
    # Torch writes "[rank1]: " before each line of a traceback, and warnings ("[W…") after it.
    path = _errors(rank, folder)
    text = path.read_text(errors="replace") if path else ""
    lines = [PREFIX.sub("", line).strip() for line in text.splitlines()]
    said = [line for line in lines if line and not line.startswith("[W")]
    return blamed(rank, said[-1] if said else f"exit code {code}")


def blamed(rank: int, why: str) -> str:
    """A line about the rank that failed, unless it failed for want of another and says of which."""
    return why if re.match(r"rank \d", why) else f"rank {rank} failed: {why}"


def first_failure(notes: Path, said: str, code: int) -> tuple[int | None, str]:
    """The rank that failed first and a line about it: by its own note, or by the number of the process that died."""
    if errors := sorted(notes.glob("*.error"), key=lambda path: path.stat().st_mtime_ns):
        rank = int(errors[0].stem)
        return rank, blamed(rank, errors[0].read_text())
    processes = {path.read_text(): int(path.stem) for path in notes.glob("*.process")}
    for number in re.findall(r"(?:PID|pid)[ :=]*(\d+)", said):
        if number in processes:
            rank = processes[number]
            return rank, f"rank {rank} was killed (signal {code if code < 128 else code - 128})"
    # As MPICH's launcher for one host tells it, which ends the others by these two.
    signals = {signal.strsignal(each): each for each in signal.Signals}
    ends = re.findall(r"(\d+):Return code = \d+, signaled with (.+)", said)
    for rank, name in sorted(ends, key=lambda end: end[1] in ("Terminated", "Quit")):
        return int(rank), f"rank {rank} was killed (signal {signals.get(name.strip(), name)})"
    lines = [line.strip() for line in said.splitlines() if "rror" in line] or ["no message"]
    return None, f"mpirun failed with exit code {code}: {lines[0]}"
