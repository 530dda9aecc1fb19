"""mpirun: start ranks as MPI wants them started."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from manyhands.comm.launch import show_log, speaking
from manyhands.comm.rank import NOTES
from manyhands.errors import MissingPackage, RankError

# Open MPI's own way to say that root may: whoever is root here has chosen so before.
ROOT_MAY = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
PATIENCE = 5.0  # seconds that mpirun has to end its ranks


def find() -> str:
    """The program, first beside this Python: there it comes from the same package as mpi4py's library."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    if find_spec("mpi4py") is None or (program := shutil.which("mpirun", path=path)) is None:
        raise MissingPackage("backend 'mpi' needs mpi4py and mpirun: pip install mpi4py mpich")
    return program


def ranks(
    module: str,
    arguments: Sequence[str],
    world: int,
    *,
    limit: float | None = None,
    environment: Mapping[str, str] | None = None,
    shown: bool = False,
) -> None:
    """Run `python -m module arguments…` as `world` ranks on this host, to their end, or for `limit` seconds.

    The first rank that fails ends them all. What they print is dropped, or, with `shown`, the first rank's goes to
    this process's own output, at once.
    """
    command = [find(), "-n", str(world), sys.executable, "-m", "manyhands.comm.rank", module, *arguments]
    with tempfile.TemporaryDirectory(prefix="manyhands-") as folder:
        notes, said = Path(folder), Path(folder) / "output"
        settings = {**os.environ, **ROOT_MAY, NOTES: folder, "OMP_NUM_THREADS": "1", **(environment or {})}
        with said.open("wb", buffering=0) as output:
            # Without standard input: mpirun would read what is meant for the shell.
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if shown else output,
                stderr=subprocess.PIPE if shown else subprocess.STDOUT,
                env={**settings, **speaking(folder)} if shown else settings,
            )
            copying = [_copy(pipe, to, output) for pipe, to in ((child.stdout, 1), (child.stderr, 2)) if pipe]
            try:
                code = child.wait(limit)
            except subprocess.TimeoutExpired:
                raise RankError(f"{world} ranks under mpirun did not end within {limit:.0f} s") from None
            finally:
                _end(child)
                for thread in copying:
                    thread.join(PATIENCE)
        if code != 0:
            failed = _first_failure(notes, said.read_text(errors="replace"), code)
            if number := re.match(r"rank (\d+)", failed):
                show_log(notes, int(number[1]))
            raise RankError(failed)


def _copy(pipe: IO[bytes], to: int, kept: IO[bytes]) -> threading.Thread:
    """Pass on what comes through a pipe, at once, and keep it: only mpirun says which process was killed."""

    def copy() -> None:
        # When nobody reads it any more (| head), mpirun is to notice as well.
        with pipe, contextlib.suppress(OSError):
            while chunk := os.read(pipe.fileno(), 1 << 16):
                kept.write(chunk)
                os.write(to, chunk)

    thread = threading.Thread(target=copy, name="output", daemon=True)
    thread.start()
    return thread


def _end(child: "subprocess.Popen[bytes]") -> None:
    """However this ends, no rank stays."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if child.poll() is None:
            child.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(PATIENCE)


def _first_failure(notes: Path, said: str, code: int) -> str:
    """One line about the rank that failed first: by its own note, or by the number of the process that died."""
    if errors := sorted(notes.glob("*.error"), key=lambda path: path.stat().st_mtime_ns):
        return f"rank {errors[0].stem} failed: {errors[0].read_text()}"
    processes = {path.read_text(): path.stem for path in notes.glob("*.process")}
    for number in re.findall(r"(?:PID|pid)[ :=]*(\d+)", said):
        if number in processes:
            return f"rank {processes[number]} was killed (signal {code if code < 128 else code - 128})"
    lines = [line.strip() for line in said.splitlines() if "rror" in line] or ["no message"]
    return f"mpirun failed with exit code {code}: {lines[0]}"
