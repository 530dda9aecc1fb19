"""Contest: real steps of several plans, in turn, each in processes of its own.

Every plan gets its processes, pinned and settled as a training's would be; they come up together and wait until all
are warm. A round lets each plan train for a moment while the others sleep: what else disturbs the machine falls on all
alike. The bell is a named pipe that each process has: one that waits for it takes nothing from the one whose turn it
is. (Looking for a file every other millisecond, eight of them made each other slower by a fifth on 2 cores.)

    python -m manyhands.runs.contest FOLDER NAME      is a process of one plan, alone or as a rank
"""

import json
import math
import os
import statistics
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from manyhands.comm.launch import elastic, fresh_process, mpirun
from manyhands.comm.ranks.rank_info import place
from manyhands.comm.rendezvous import leave
from manyhands.config import Config, with_values
from manyhands.config import from_table as config_from_table
from manyhands.errors import ManyhandsError
from manyhands.files import TemporaryFolder, write_json
from manyhands.machine.detect import detect
from manyhands.plan.plan import Plan, from_table, to_table
from manyhands.progress import bar

ROUNDS = 5
SECONDS = 0.5  # of a plan's turn
LEAST, MOST = 2, 200  # steps of a turn
WARM = 3  # steps before all rounds
START = 240.0  # seconds in which a plan's processes must be warm, or done with a turn
PAUSE = 0.01  # seconds between two looks of the conductor
GO, STOP = b"g", b"s"


@dataclass(frozen=True)
class Turn:
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


def contest(config: Config, plans: Sequence[Plan], rounds: int = ROUNDS) -> list[Turn]:
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
    return [Turn(player.plan, tuple(player.times), player.error) for player in players]


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
                code, errors = fresh_process.in_fresh_process("manyhands.runs.contest", *arguments)
                if code != 0:
                    self.error = (errors.strip().splitlines() or [f"exit code {code}"])[-1]
            elif self.plan.backend == "mpi":
                mpirun.ranks("manyhands.runs.contest", arguments, self.plan.world)
            else:
                code, errors = fresh_process.in_fresh_process("manyhands.runs.contest", *arguments, "launch")
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


def main(folder: Path, name: str, launches: bool) -> None:
    """Launch a plan's ranks, or be one of its processes."""
    order = json.loads((folder / f"{name}.order.json").read_text())
    plan = from_table(order["plan"], "order.json")
    if launches:
        elastic.ranks("manyhands.runs.contest", [str(folder), name], plan.world)
        return
    _play(folder, name, plan, config_from_table(order["config"], "order.json"))
    leave()


def _play(folder: Path, name: str, plan: Plan, config: Config) -> None:
    from manyhands.comm.process_setup import enter

    here = place()
    enter(plan, config, here)
    from manyhands.comm.ranks.rank_group import Team
    from manyhands.data.load import load
    from manyhands.train.autotune import bind_together
    from manyhands.train.checks.guard import guard
    from manyhands.train.job import assemble

    team = Team(here.rank, here.world) if here and plan.has_ranks else Team()
    dataset = load(config.data.name, config.data)
    plan, _ = bind_together(team, plan, config, dataset, detect())
    guard(config, plan, dataset, team)  # what is refused when it trains must not win here
    job = assemble(with_values(config, {"train.grow": None}), plan, dataset, team)
    steps = Steps(job)
    steps.take(WARM)
    begun = time.perf_counter()
    steps.take(LEAST)
    each = (time.perf_counter() - begun) / LEAST
    turn = team.told(min(max(round(SECONDS / each), LEAST), MOST))
    bell = _hang(folder / f"{name}.bell{team.rank}")
    team.meet()
    if team.leads:
        write_json(folder / f"{name}.ready", to_table(plan))
    for number in count():
        # Every rank hears for itself: one that waited in a collective would keep its core busy.
        if os.read(bell, 1) != GO:
            return
        steps.take(1)  # brings caches and ranks together again
        begun = time.perf_counter()
        steps.take(turn)
        taken = 1000 * (time.perf_counter() - begun) / turn
        if team.leads:
            write_json(folder / f"{name}.done{number}", taken)


def _hang(path: Path) -> int:
    """A pipe to wait at; open for writing too, so that it does not end when a writer has gone."""
    os.mkfifo(path)
    return os.open(path, os.O_RDWR)


class Steps:
    """Full batches of the training set, epoch after epoch."""

    def __init__(self, job: Any) -> None:
        self.job, self.epoch, self.number = job, 0, 0
        self.batches = job.trainee.feed.epoch(0)

    def take(self, count: int) -> None:
        loss = None
        for _ in range(count):
            loss = self.job.step(*self._next())
        if loss is not None:
            loss.item()  # waits for the device

    def _next(self) -> tuple[Any, Any]:
        feed = self.job.trainee.feed
        whole = len(feed) if feed.share(len(feed) - 1).whole == feed.share(0).whole else max(len(feed) - 1, 1)
        if self.number >= whole:
            self.epoch, self.number = self.epoch + 1, 0
            self.batches = feed.epoch(self.epoch)
        share = feed.share(self.number)
        self.number += 1
        return next(self.batches), share


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    main(Path(sys.argv[1]), sys.argv[2], "launch" in sys.argv[3:])
