"""Supervisor: processes of one host of which some may die while the others go on."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from manyhands.comm.launch.failures import failure
from manyhands.comm.ranks.rank_info import PARENT
from manyhands.comm.ranks.status_files import NOTES
from manyhands.files import TemporaryFolder

LOOK = 0.05  # seconds between two looks at who is alive
PATIENCE = 5.0  # seconds to end by themselves


class ProcessSupervisor:
    """Starts `python -m module arguments… RANK` for each rank, and tells who has ended and why."""

    def __init__(
        self,
        module: str,
        arguments: Sequence[str],
        world: int,
        environment: Mapping[str, str],
        ended: Callable[[int, str | None], None],
    ) -> None:
        """`ended` hears of each rank that has ended: None, or one line about its failure; from a thread of its own."""
        self.command = [sys.executable, "-m", "manyhands.comm.launch.bootstrap", module, *arguments]
        self.world, self.ended = world, ended
        self.folder = TemporaryFolder()
        self.environment = {**os.environ, **environment, PARENT: str(os.getpid()), NOTES: self.folder.name}
        self.alive: dict[int, subprocess.Popen[bytes]] = {}
        self.stopping = threading.Event()
        self.watcher = threading.Thread(target=self._watch, name="flock", daemon=True)

    def __enter__(self) -> "ProcessSupervisor":
        for rank in range(self.world):
            self.start(rank)
        self.watcher.start()
        return self

    def start(self, rank: int) -> None:
        """Start a rank, or start it again."""
        place = {"RANK": rank, "WORLD_SIZE": self.world, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": self.world}
        told = {**self.environment, **{name: str(value) for name, value in place.items()}}
        with Path(self.folder.name, f"{rank}.log").open("wb") as log:
            self.alive[rank] = subprocess.Popen(
                [*self.command, str(rank)], env=told, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log
            )

    def _watch(self) -> None:
        while not self.stopping.wait(LOOK):
            # The last ones first: those are servers, for want of which workers fail.
            for rank, process in sorted(self.alive.items(), reverse=True):
                if (code := process.poll()) is not None and not self.stopping.is_set():
                    del self.alive[rank]
                    self.ended(rank, failure(rank, code, Path(self.folder.name)) if code else None)

    def __exit__(self, *about: object) -> None:
        """Wait for those that end by themselves, then insist."""
        patience = PATIENCE if about[0] is None else 0.0
        self.stopping.set()
        self.watcher.join()
        deadline = time.monotonic() + patience
        for process in self.alive.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.wait()
        self.folder.cleanup()
