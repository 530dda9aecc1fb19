"""mpirun: start ranks as MPI wants them started."""

import contextlib
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from manyhands.comm.backends.mpich_memory import SHARED, memory_of
from manyhands.comm.launch.elastic import speaking
from manyhands.comm.launch.failures import first_failure, show_log
from manyhands.comm.ranks import loopback
from manyhands.comm.ranks.rank_info import LAUNCHER, RESTARTS
from manyhands.comm.ranks.status_files import NOTES
from manyhands.errors import MissingPackage, RankError
from manyhands.files import TemporaryFolder

# First MPICH's own for one host: its mpirun listens on all interfaces, whatever it is told.
PROGRAMS = ("mpiexec.gforker", "mpirun")
# Open MPI's own way to say that root may: whoever is root here has chosen so before.
ROOT_MAY = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
PATIENCE = 5.0  # seconds that mpirun has to end its ranks when it is told to
MOMENT = 2.0  # seconds that it has to do so by itself, when one has failed
LOOK = 0.2  # seconds between two looks


def find() -> str:
    """The program, first beside this Python: there it comes from the same package as mpi4py's library."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    programs = (program for name in PROGRAMS if (program := shutil.which(name, path=path)))
    if find_spec("mpi4py") is None or (program := next(programs, None)) is None:
        raise MissingPackage("backend 'mpi' needs mpi4py and mpirun: pip install mpi4py mpich")
    return program


def ranks(
    module: str,
    arguments: Sequence[str],
    world: int,
    *,
    restarts: int = 0,
    limit: float | None = None,
    environment: Mapping[str, str] | None = None,
    script: bool = False,
) -> None:
    """Run `python -m module arguments…` as `world` ranks on this host, to their end, or for `limit` seconds.

    The first rank that fails ends them all; up to `restarts` times all start again. Should this process be killed,
    they end. What they print is dropped, or, of a user's `script`, the first rank's goes to this process's own output,
    at once.
    """
    command = [find(), "-n", str(world), sys.executable, "-m", "manyhands.comm.launch.bootstrap", module, *arguments]
    settings = {**os.environ, **ROOT_MAY, LAUNCHER: str(os.getpid()), "OMP_NUM_THREADS": "1", **(environment or {})}
    for turn in range(restarts):
        with contextlib.suppress(RankError):
            return _once(command, world, {**settings, RESTARTS: str(turn)}, limit, script)
    return _once(command, world, {**settings, RESTARTS: str(restarts)}, limit, script)


def _once(command: Sequence[str], world: int, settings: Mapping[str, str], limit: float | None, script: bool) -> None:
    with TemporaryFolder() as folder:
        notes, said = Path(folder), Path(folder) / "output"
        told = {**(speaking(folder) if script else {NOTES: folder}), **loopback.environment(folder)}
        _forget_abandoned()
        with said.open("wb", buffering=0) as output:
            # Without standard input: mpirun would read what is meant for the shell.
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if script else output,
                stderr=subprocess.PIPE if script else subprocess.STDOUT,
                env={**settings, **told},
            )
            copying = [_copy(pipe, to, output) for pipe, to in ((child.stdout, 1), (child.stderr, 2)) if pipe]
            try:
                _wait(child, notes, limit)
            finally:
                _end(child, notes)
                for thread in copying:
                    thread.join(PATIENCE)
        # MPICH's for one host ends with 0 although a rank was killed.
        if child.returncode != 0 or len(list(notes.glob("*.done"))) < world:
            rank, failed = first_failure(notes, said.read_text(errors="replace"), child.returncode)
            if rank is not None:
                show_log(notes, rank)
            raise RankError(failed)


def _wait(child: "subprocess.Popen[bytes]", notes: Path, limit: float | None) -> None:
    """Until it ends, or does not although a rank has failed: mpirun ends the others only once they have met."""
    start, failed = time.monotonic(), math.inf
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(LOOK)
            return
        now = time.monotonic()
        if any(notes.glob("*.error")):
            failed = min(failed, now)
        if now - failed > MOMENT:
            return
        if limit is not None and now - start > limit:
            raise RankError(f"the ranks under mpirun did not end within {limit:.0f} s")


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


def _end(child: "subprocess.Popen[bytes]", notes: Path) -> None:
    """However this ends, no rank stays, nor memory that ranks had not yet taken the name from (see mpi.py)."""
    memory = [each for path in notes.glob("*.process") for each in memory_of(path.read_text())]
    for number in (signal.SIGTERM, signal.SIGKILL):
        if child.poll() is None:
            child.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(PATIENCE)
    for each in memory:
        each.unlink(missing_ok=True)
    _forget_abandoned()


def _forget_abandoned() -> None:
    """Take away what killed ranks left: before ranks start, of a launcher that was killed too, and after they ended."""
    for each in abandoned_memory():
        each.unlink(missing_ok=True)


def abandoned_memory() -> list[Path]:
    """MPICH's shared memory of this user that no process has mapped: its ranks were killed before they could unlink it.

    Looked for twice: between creating and mapping it a rank of another program has not mapped it either.
    """
    found = _unmapped()
    if found:
        time.sleep(LOOK)
        found &= _unmapped()
    return sorted(found)


def _unmapped() -> set[Path]:
    folder, prefix = os.path.split(SHARED)
    mine = {each for each in Path(folder).glob(f"{prefix}*") if _is_mine(each)}
    if mine:
        for process in filter(_is_mine, Path("/proc").glob("[0-9]*")):
            mine.difference_update(memory_of(process.name))
    return mine


def _is_mine(path: Path) -> bool:
    try:
        return path.stat().st_uid == os.getuid()
    except OSError:  # gone meanwhile
        return False
