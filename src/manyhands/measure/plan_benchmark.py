"""Plan benchmark: real steps of several plans, in turn, each in processes of its own.

Every plan gets its processes, pinned and settled as a training's would be; they come up together and wait until all
are warm. A round lets each plan train for a moment while the others sleep: what else disturbs the machine falls on all
alike. The bell is a named pipe that each process has: one that waits for it takes nothing from the one whose turn it
is. (Looking for a file every other millisecond, eight of them made each other slower by a fifth on 2 cores.)

    python -m manyhands.measure.plan_benchmark_worker FOLDER NAME      is a process of one plan, alone or as a rank
"""

import json
import math
import os
import statistics
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from manyhands.comm.launch import fresh_process, mpirun
from manyhands.config import Config
from manyhands.errors import ManyhandsError
from manyhands.files import TemporaryFolder, write_json
from manyhands.plan.plan import Plan, from_table, to_table
from manyhands.progress import bar

ROUNDS = 5
START = 240.0  # seconds in which a plan's processes must be warm, or done with a turn
PAUSE = 0.01  # seconds between two looks of the coordinator
GO, STOP = b"g", b"s"


@dataclass(frozen=True)
class BenchmarkResult:
    """A plan, and the milliseconds of a step in each round; none where it does not run."""

    plan: Plan
    rounds: tuple[float, ...]
    error: str | None = None

    @property
    def step_ms(self) -> float:
        """The median: a round that something disturbed does not count, and one that was lucky does not either."""
        return statistics.median(self.rounds) if self.rounds else math.inf

    @property
    def error_ms(self) -> float:
        """The standard error of the mean over rounds."""
        return statistics.stdev(self.rounds) / math.sqrt(len(self.rounds)) if len(self.rounds) > 1 else 0.0


def benchmark(config: Config, plans: Sequence[Plan], rounds: int = ROUNDS) -> list[BenchmarkResult]:
    """Let plans train in turn; what their options leave open is bound by trials before."""
    with TemporaryFolder() as name, bar("trying plans", len(plans), "plans") as shown:
        folder = Path(name)
        players = [_Player(folder, f"plan{number}", plan, config) for number, plan in enumerate(plans)]
        try:
            for player in players:
                player.thread.start()
            for player in players:
                player.ready()
                shown.advance(1, player.plan.name)
            for number in range(rounds):
                for player in players:
                    player.turn(number)
        finally:
            for player in players:
                player.stop()
    return [BenchmarkResult(player.plan, tuple(player.times), player.error) for player in players]


class _Player:
    """One plan's side in the process that conducts."""

    def __init__(self, folder: Path, name: str, plan: Plan, config: Config) -> None:
        self.folder, self.name, self.plan = folder, name, plan
        self.times: list[float] = []
        self.error: str | None = None
        write_json(folder / f"{name}.order.json", {"config": config.to_json(), "plan": to_table(plan)})
        self.thread = threading.Thread(target=self._run, name=name)

    def _run(self) -> None:
        arguments = [str(self.folder), self.name]
        try:
            if not self.plan.has_ranks:
                code, errors = fresh_process.in_fresh_process("manyhands.measure.plan_benchmark_worker", *arguments)
                if code != 0:
                    self.error = (errors.strip().splitlines() or [f"exit code {code}"])[-1]
            elif self.plan.backend == "mpi":
                mpirun.ranks("manyhands.measure.plan_benchmark_worker", arguments, self.plan.world)
            else:
                code, errors = fresh_process.in_fresh_process(
                    "manyhands.measure.plan_benchmark_worker", *arguments, "launch"
                )
                if code != 0:
                    self.error = (errors.strip().splitlines() or [f"exit code {code}"])[-1]
        except ManyhandsError as error:
            self.error = str(error)

    def ready(self) -> None:
        """Wait until its processes are warm; the plan is then bound."""
        if self._await("ready"):
            self.plan = from_table(json.loads((self.folder / f"{self.name}.ready").read_text()), "ready")

    def turn(self, number: int) -> None:
        if self.error is None:
            self._ring(GO)
            if self._await(f"done{number}"):
                self.times.append(json.loads((self.folder / f"{self.name}.done{number}").read_text()))

    def _await(self, what: str) -> bool:
        deadline = time.monotonic() + START
        while not (self.folder / f"{self.name}.{what}").exists():
            if not self.thread.is_alive() or time.monotonic() > deadline:
                self.error = self.error or f"no answer within {START:.0f} s"
                return False
            time.sleep(PAUSE)
        return True

    def _ring(self, what: bytes) -> None:
        """Tell each of its processes; one that is not there any more needs no telling."""
        for bell in self.folder.glob(f"{self.name}.bell*"):
            with suppress(OSError):
                end = os.open(bell, os.O_WRONLY | os.O_NONBLOCK)
                os.write(end, what)
                os.close(end)

    def stop(self) -> None:
        """Until all have ended: some may still be on their way to the bell."""
        while self.thread.ident is not None and self.thread.is_alive():
            self._ring(STOP)
            self.thread.join(0.1)
