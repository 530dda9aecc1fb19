"""Process: one training inside the process that was started for it, from the run folder to its result."""

import os
import platform
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from manyhands.comm.process_setup import setup_process
from manyhands.comm.ranks.rank_info import place
from manyhands.comm.rendezvous import leave
from manyhands.plan.plan import from_table
from manyhands.progress import logged_to
from manyhands.runs import run_folder
from manyhands.runs.run_folder import order_of
from manyhands.runs.status import bad_input, record_failure


def work(run: run_folder.Run, *, resume: bool = False, entered: bool = False) -> run_folder.Run:
    """Carry out the order as this process's part of it: alone, or as one rank.

    One that has `entered` is on cores of its own host already, which need not have the numbers of the first one's.
    """
    started, mine = time.perf_counter(), place()
    plan = from_table(run.record["plan"], "run.json")
    rank = mine.rank if mine and plan.has_ranks else 0
    # Of ranks that another launcher has started the first tells the others what is bad, and clears up behind it.
    watch = record_failure if rank == 0 else bad_input if not entered else nullcontext
    with logged_to(run.folder / "log.txt" if rank == 0 else Path(os.devnull)), watch(run):
        if not entered:
            setup_process(plan, order_of(run), mine)
        from manyhands.comm.ranks.rank_group import Team
        from manyhands.comm.ranks.timeouts import named
        from manyhands.train.train import train

        team = Team() if plan.is_async else Team(rank, plan.world)
        about = {"rank": rank, "pid": os.getpid(), "host": platform.node(), "cores": sorted(os.sched_getaffinity(0))}
        try:
            everyone = team.all_gather_json(about)
            if rank == 0:
                run = run.update(status="running", ranks=everyone, error=None, exit_code=None)
            result = train(run, order_of(run), plan, team, resume=resume, started=started)
        except RuntimeError as error:
            raise named(error, order_of(run).train.timeout) or error from error
        leave()
    return run_folder.load(run.folder).update(status="finished", result=result) if rank == 0 else run


def as_json(run: run_folder.Run) -> dict[str, Any]:
    """What `train --json` prints."""
    assert run.result is not None
    return run.result
