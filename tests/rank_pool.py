"""A pool of ranks, started once: importing torch costs over a second a rank.

Run as a program it is one of the ranks: it takes the name of a case, runs it in a fresh group, and says how it went.
"""

import importlib
import os
import subprocess
import sys
import tempfile
import traceback
from datetime import timedelta
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

WORLD = 4


class Pool:
    """Processes that run cases as ranks; `launcher` is the command that starts them all, none to start each."""

    def __init__(self, launcher: list[str], size: int = WORLD) -> None:
        self.launcher, self.size = launcher, size
        self.processes: list[subprocess.Popen[bytes]] = []
        self.pipes: list[Connection] = []

    def run(self, case: str, backend: str, world: int, *arguments: Any, timeout: float = 30) -> None:
        """Run `module:function` as `world` ranks; fails with the tracebacks."""
        if not self.pipes:
            self.start()
        with tempfile.TemporaryDirectory() as folder:
            for rank, pipe in enumerate(self.pipes[:world]):
                pipe.send((case, backend, rank, world, f"{folder}/store", timeout, arguments))
            answers = [self.answer(pipe, 2 * timeout) for pipe in self.pipes[:world]]
        if any(answers):  # whatever state the ranks are in now, the next case shall not suffer from it
            self.stop()
        errors = [f"rank {rank}: {answer}" for rank, answer in enumerate(answers) if answer]
        assert not errors, "\n".join(errors)

    def start(self) -> None:
        with Listener() as listener:
            worker = [sys.executable, __file__, str(listener.address)]
            commands = [[*self.launcher, *worker]] if self.launcher else [worker] * self.size
            environment = {**os.environ, "OMP_NUM_THREADS": "1"}
            self.processes = [subprocess.Popen(each, env=environment, stdin=subprocess.DEVNULL) for each in commands]
            self.pipes = [listener.accept() for _ in range(self.size)]
        if self.launcher:  # whose ranks have an order of their own
            self.pipes = [pipe for _, pipe in sorted(((pipe.recv(), pipe) for pipe in self.pipes), key=lambda x: x[0])]

    def answer(self, pipe: Connection, timeout: float) -> str | None:
        try:
            return pipe.recv() if pipe.poll(timeout) else f"no answer within {timeout:.0f} s"
        except (EOFError, ConnectionResetError):
            return "died"

    def stop(self) -> None:
        for pipe in self.pipes:
            pipe.close()
        for process in self.processes:
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.pipes = []


def serve(pipe: Connection) -> None:
    import torch.distributed as dist

    from manyhands.comm.backends import mpi

    while True:
        case, backend, rank, world, store, timeout, arguments = pipe.recv()
        answer = None
        try:
            module, _, name = case.partition(":")
            dist.init_process_group(
                mpi.TORCH_NAME if backend == "mpi" else backend,
                store=dist.FileStore(store, world),
                rank=rank,
                world_size=world,
                timeout=timedelta(seconds=timeout),
            )
            getattr(importlib.import_module(module), name)(backend, rank, world, *arguments)
            dist.barrier()
        except Exception:
            answer = traceback.format_exc()
        if dist.is_initialized():
            dist.destroy_process_group()
        pipe.send(answer)  # only now, for the store's file is then removed


def main() -> None:
    import torch

    from manyhands.comm.backends import mpi, shm
    from manyhands.comm.launch.bootstrap import die_with_parent
    from manyhands.comm.ranks.rank_info import place

    die_with_parent()
    torch.set_num_threads(1)
    shm.register()
    pipe = Client(sys.argv[1])
    if (here := place()) is not None:
        mpi.register()
        pipe.send(here.rank)
    try:
        serve(pipe)
    except EOFError:
        return


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main()
