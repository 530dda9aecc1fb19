"""Plan benchmark, worker side: one plan, which trains for a moment in its turn and blocks in the others'."""

import json
import os
import sys
import time
from itertools import count
from pathlib import Path

from manyhands.comm.launch import elastic
from manyhands.comm.ranks.rank_info import place
from manyhands.comm.rendezvous import leave
from manyhands.config import Config, with_values
from manyhands.config import from_table as config_from_table
from manyhands.files import write_json
from manyhands.machine.detect import detect
from manyhands.measure.plan_benchmark import GO
from manyhands.plan.plan import Plan, from_table, to_table
from manyhands.train.step_timing import Steps

SECONDS = 0.5  # of a plan's turn
LEAST, MOST = 2, 200  # steps of a turn
WARM = 3  # steps before all rounds


def main(folder: Path, name: str, launches: bool) -> None:
    """Launch a plan's ranks, or be one of its processes."""
    order = json.loads((folder / f"{name}.order.json").read_text())
    plan = from_table(order["plan"], "order.json")
    if launches:
        elastic.ranks("manyhands.measure.plan_benchmark_worker", [str(folder), name], plan.world)
        return
    _play(folder, name, plan, config_from_table(order["config"], "order.json"))
    leave()


def _play(folder: Path, name: str, plan: Plan, config: Config) -> None:
    from manyhands.comm.process_setup import setup_process

    here = place()
    setup_process(plan, config, here)
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
    turn = team.broadcast_json(min(max(round(SECONDS / each), LEAST), MOST))
    bell = _hang(folder / f"{name}.bell{team.rank}")
    team.barrier()
    if team.is_leader:
        write_json(folder / f"{name}.ready", to_table(plan))
    for number in count():
        # Every rank hears for itself: one that waited in a collective would keep its core busy.
        if os.read(bell, 1) != GO:
            return
        steps.take(1)  # brings caches and ranks together again
        begun = time.perf_counter()
        steps.take(turn)
        taken = 1000 * (time.perf_counter() - begun) / turn
        if team.is_leader:
            write_json(folder / f"{name}.done{number}", taken)


def _hang(path: Path) -> int:
    """A pipe to wait at; open for writing too, so that it does not end when a writer has gone."""
    os.mkfifo(path)
    return os.open(path, os.O_RDWR)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    main(Path(sys.argv[1]), sys.argv[2], "launch" in sys.argv[3:])
