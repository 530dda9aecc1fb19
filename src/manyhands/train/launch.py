"""Launch: carry out the order in a run's folder, in this process or on ranks, and go on with one that was interrupted.

run.json is the whole order (train.create makes it): a rank or a repeat in a fresh process is told the folder alone.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from manyhands.comm.launch import elastic, mpirun
from manyhands.comm.process_setup import setup_process
from manyhands.comm.ranks.rank_info import Place, is_leader, place
from manyhands.comm.ranks.stopped import GRACE, ended_when_stopped
from manyhands.config import Config, located
from manyhands.errors import InputError, RankError
from manyhands.machine.detect import detect
from manyhands.plan.plan import Plan, from_table
from manyhands.progress import Bar, bar, looking
from manyhands.runs import run_folder
from manyhands.runs.environment import versions
from manyhands.runs.lock import held
from manyhands.runs.metrics_reader import share_done
from manyhands.runs.run_folder import order_of
from manyhands.runs.status import kept_if_begun, record_failure
from manyhands.train.checks.source_hash import check_code, source_hash
from manyhands.train.plan_constraints import resolve
from manyhands.train.process import work


def execute(run: run_folder.Run, *, resume: bool = False) -> run_folder.Run:
    """Carry out the order: in this process, by ranks, or as a rank that another launcher has started."""
    with held(run) as run:
        plan = from_table(run.record["plan"], "run.json")
        if not plan.has_ranks or plan.is_async or place() is not None:
            return work(run, resume=resume)
        with record_failure(run):
            try:
                _launch(run.update(status="running", error=None, exit_code=None), plan, resume)
            except RankError as error:
                told = run_folder.load(run.folder).record
                if told.get("exit_code") == InputError.exit_code:  # what a rank found out
                    raise InputError(str(told["error"])) from error
                raise
        return run_folder.load(run.folder)


def _launch(run: run_folder.Run, plan: Plan, resume: bool) -> None:
    """Start the ranks, and show how far they are."""
    arguments = [str(run.folder), *(["--resume"] if resume else [])]
    ranks, order = mpirun.ranks if plan.backend == "mpi" else elastic.ranks, order_of(run).train
    with (
        bar(f"training on {plan.world} ranks", 100, "%") as shown,
        progress_shown(run.folder, shown),
        ended_when_stopped(order.timeout + GRACE),
    ):
        ranks("manyhands.train.rank", arguments, plan.world, restarts=order.restarts)


@contextmanager
def progress_shown(folder: Path, shown: Bar) -> Iterator[None]:
    """Advance a bar from 0 to 100 as a run in other processes goes on."""
    told = 0.0

    def look() -> None:
        nonlocal told
        share = 100 * share_done(folder)
        shown.advance(max(0.0, share - told))
        told = max(share, told)

    with looking(look, 0.5):
        yield


def join_ranks(
    begun: Callable[[], run_folder.Run], config: Config, plan: Plan, here: Place, *, resume: bool, existed: bool = True
) -> run_folder.Run:
    """As one of the ranks that another launcher has started: the first begins the run and tells it the others."""
    setup_process(plan, config, here)
    from manyhands.comm.ranks.rank_group import Team
    from manyhands.train.checks.agreement import alike

    team, run, refused = Team(here.rank, here.world), None, None
    alike(
        team,
        {
            "versions": {name: each for name, each in versions().items() if name in ("manyhands", "torch")},
            "plan": str(replace(plan, cores=None, threads=None)),
            "config": located(config).to_json(),
            "code of the model": source_hash(config.model.name),
        },
    )
    with ExitStack() as stack:
        if team.is_leader:
            try:
                run = stack.enter_context(held(begun()))
                if not resume:
                    stack.enter_context(kept_if_begun(run, existed))
            except InputError as error:
                refused = error
        told = {"refused": str(refused)} if refused else {"folder": run.folder, "record": run.record} if run else None
        told = team.broadcast_json(told)
        if "refused" in told:
            raise refused or InputError(told["refused"])
        return work(run_folder.Run(told["folder"], told["record"]), resume=resume, entered=True)


def resume(folder: Path, *, changed_code: bool = False) -> run_folder.Run:
    """Go on with a run from its newest intact checkpoint; `changed_code`: though its model's code is another one."""
    run, here = run_folder.load(folder), place()
    if is_leader():
        check_code(run, allowed=changed_code)
    if here is None:
        return execute(run, resume=True)
    config, plan = order_of(run), from_table(run.record["plan"], "run.json")
    return join_ranks(lambda: run, config, resolve(plan, config, detect(), here), here, resume=True)
