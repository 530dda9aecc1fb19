"""A pool of ranks, started once: importing torch costs over a second a rank."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

import pytest


class Pool:
    """Processes that run cases as ranks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.workers: list[tuple[subprocess.Popen[bytes], Connection]] = []

    def run(self, case: str, backend: str, world: int, timeout: float = 30) -> None:
        """Run a case; fails with the first traceback."""
        while len(self.workers) < world:
            self.start()
        with tempfile.NamedTemporaryFile(dir=self.folder) as store:
            pipes = [pipe for _, pipe in self.workers[:world]]
            for rank, pipe in enumerate(pipes):
                pipe.send((case, backend, rank, world, f"{store.name}.store", timeout))
            answers = [pipe.recv() for pipe in pipes]
        errors = [f"rank {rank}: {answer}" for rank, answer in enumerate(answers) if answer]
        assert not errors, "\n".join(errors)

    def start(self) -> None:
        here, there = Pipe()
        command = [sys.executable, str(Path(__file__).with_name("worker.py")), str(there.fileno())]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.workers.append((subprocess.Popen(command, pass_fds=[there.fileno()], env=environment), here))
        there.close()

    def stop(self) -> None:
        for worker, pipe in self.workers:
            pipe.close()
            worker.wait(10)


@pytest.fixture(scope="session")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    pool = Pool(tmp_path_factory.mktemp("pool"))
    yield pool
    pool.stop()
