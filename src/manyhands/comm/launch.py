"""Launch: start work in processes of its own."""

import contextlib
import logging
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from manyhands.comm import loopback
from manyhands.comm.rank import NOTES, PARENT, SHOWN
from manyhands.errors import RankError
from manyhands.files import TemporaryFolder

PREFIX = re.compile(r"^(\[rank\d+\]: ?)?(manyhands\.errors\.\w+: )?")
TAIL = 50  # lines of a rank's log that are shown when it fails
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
ASKED = 8.0  # seconds to end when asked: torch gives each loader process five, and their folder goes only then
PATIENCE = 5  # seconds that ranks have to end when they are told to; one that is stopped never does


def in_fresh_process(module: str, *arguments: str) -> tuple[int, str]:
    """Run `python -m module arguments…` to its end; gives the exit code and the end of its standard error.

    A fresh process is the only like-for-like one: allocator, threads and caches of an earlier training stay
    behind. When this process is interrupted, the child goes first; when it is killed, the child goes too.
    """
    command = [sys.executable, "-m", "manyhands.comm.rank", module, *arguments]
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


def ranks(
    module: str,
    arguments: Sequence[str],
    world: int,
    *,
    restarts: int = 0,
    environment: Mapping[str, str] | None = None,
    script: bool = False,
) -> None:
    """Run `python -m module arguments…` as `world` ranks on this host, on PyTorch's elastic agent, to their end.

    The first rank that fails ends them all; up to `restarts` times all start again. An interruption (Ctrl-C)
    is passed on when all have ended. Should this process be killed, the kernel ends the ranks. What they print is
    dropped. A user's `script` shows what its first rank prints, at once, and may itself call `init_process_group`.
    """
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, PContext, SignalException, Std
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    from manyhands.comm import one_host  # which imports torch

    one_host.register()
    settings = {
        "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": str(PATIENCE),  # after an interruption
        "OMP_NUM_THREADS": str(max(len(os.sched_getaffinity(0)) // world, 1)),
        **(environment or {}),
        PARENT: str(os.getpid()),
    }
    interrupted = failed = None
    with (
        TemporaryFolder() as folder,
        _environment(settings),
        _quiet_agent(),
        _patience(PContext.close),
    ):
        os.environ.update(loopback.environment(folder))
        if script:
            os.environ.update(speaking(folder))
        # To `tee`, torch reads the files again, by lines, ten times a second: no progress bar would live through that.
        logs = DefaultLogsSpecs(folder, Std.NONE if script else Std.ALL)
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=world,
            logs_specs=logs,
            run_id="manyhands",
            rdzv_backend=one_host.NAME,
            rdzv_configs={"listens": script},
            local_addr=loopback.LOOPBACK,
            max_restarts=restarts,
            monitor_interval=0.1,
            # What nohup has a command ignore it goes on to ignore.
            signals_to_handle=",".join(each.name for each in SIGNALS if signal.getsignal(each) != signal.SIG_IGN),
        )
        try:
            elastic_launch(config, sys.executable)("-m", "manyhands.comm.rank", module, *arguments)
        except ChildFailedError as error:
            rank = _first_failed(error.failures, Path(folder))
            failed = failure(rank, error.failures[rank].exitcode, Path(folder))
            show_log(Path(folder), rank)
        except SignalException as error:
            interrupted = error.sigval
    if failed is not None:
        raise RankError(failed)
    if interrupted is not None:
        signal.raise_signal(interrupted)


def speaking(folder: str) -> dict[str, str]:
    """The environment of ranks of which the first speaks; unbuffered, for it may be ended at any time."""
    return {SHOWN: "1", NOTES: folder, "PYTHONUNBUFFERED": "1"}


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


def _first_failed(failures: Mapping[int, Any], folder: Path) -> int:
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


@contextlib.contextmanager
def _environment(settings: Mapping[str, str]) -> Iterator[None]:
    """Set variables for the ranks, which inherit them, and put them back."""
    before = dict(os.environ)
    os.environ.update(settings)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextlib.contextmanager
def _patience(close: Any) -> Iterator[None]:
    """Have the agent wait no longer for ranks that it ends after a failure; that it has no option for."""
    before = close.__defaults__
    close.__defaults__ = (*before[:-1], PATIENCE)
    try:
        yield
    finally:
        close.__defaults__ = before


@contextlib.contextmanager
def _quiet_agent() -> Iterator[None]:
    """Keep the agent from logging and from warnings about log files that it leaves open; give its signals back."""
    loggers = [logging.getLogger(name) for name in logging.root.manager.loggerDict if "torch.distributed" in name]
    levels = [logger.level for logger in loggers]
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
        for number, handler in handlers.items():
            # Python cannot put a handler back that it did not set, nor any from another thread.
            with contextlib.suppress(ValueError, TypeError):
                signal.signal(number, handler)
