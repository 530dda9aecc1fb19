"""Elastic: start work in processes of its own."""

import contextlib
import logging
import os
import signal
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from manyhands.comm.launch.failures import failure, first_failed, show_log
from manyhands.comm.ranks import loopback
from manyhands.comm.ranks.rank_info import PARENT, SHOWN
from manyhands.comm.ranks.status_files import NOTES
from manyhands.errors import RankError
from manyhands.files import TemporaryFolder

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
ASKED = 8.0  # seconds to end when asked: torch gives each loader process five, and their folder goes only then
PATIENCE = 5  # seconds that ranks have to end when they are told to; one that is stopped never does


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

    from manyhands.comm.ranks import one_host  # which imports torch

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
            elastic_launch(config, sys.executable)("-m", "manyhands.comm.launch.bootstrap", module, *arguments)
        except ChildFailedError as error:
            rank = first_failed(error.failures, Path(folder))
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
