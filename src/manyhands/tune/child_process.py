"""Child process: a part of the tuning, in a fresh process or in ranks, where it may run out of memory without harm.

    python -m manyhands.tune.worker FOLDER [launch]

FOLDER/order.json says what is to be done, answer.json or error.json what came of it, done how far it is.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manyhands.comm.launch import fresh_process, mpirun
from manyhands.config import Config
from manyhands.errors import InputError, ManyhandsError, PlanError, RunError
from manyhands.files import TemporaryFolder, write_json
from manyhands.machine.detect import detect
from manyhands.plan.plan import Plan, to_table
from manyhands.progress import looking
from manyhands.train.plan_constraints import resolve

if TYPE_CHECKING:
    from manyhands.comm.ranks.rank_group import Team
    from manyhands.data.dataset import Dataset

TUNED = ("plain", "serial", "ddp", "data")
MODULE = "manyhands.tune.worker"
PAUSE = 0.5  # seconds between two looks at how far it is


@dataclass(frozen=True)
class Reply:
    """What a child came to: a value, or why there is none."""

    value: dict[str, Any] | None
    error: str = ""
    exit_code: int = 0

    def known(self) -> dict[str, Any]:
        """The value; the child's error is raised here."""
        if self.value is not None:
            return self.value
        raise InputError(self.error) if self.exit_code == InputError.exit_code else RunError(self.error)


@dataclass(frozen=True)
class Task:
    """What a child is told, with the data and the ranks that it works with."""

    config: Config
    plan: Plan
    details: dict[str, Any]
    dataset: "Dataset"
    team: "Team"
    folder: Path

    def done(self) -> None:
        """One more part of the work is."""
        if self.team.is_leader:
            with (self.folder / "done").open("ab") as file:
                file.write(b".")


def settled(config: Config, plan: Plan) -> Plan:
    """The plan as a child needs it."""
    apart = not {axis.name for axis in plan.axes} <= {"auto", *TUNED} or plan.consistency not in (None, "sync")
    if apart or plan.is_model_parallel:
        raise PlanError(f"plan {plan} cannot be tuned yet: use plain, serial, ddp:N or data:N in step")
    return resolve(plan, config, detect())


def ask(
    work: str, config: Config, plan: Plan, heard: Callable[[int], None] = lambda parts: None, **details: Any
) -> Reply:
    """Have something done under a plan that has been settled; `heard` is told of each part that is done."""
    order = {"work": work, "config": config.to_json(), "plan": to_table(plan), "details": details}
    with TemporaryFolder() as name:
        folder = Path(name)
        write_json(folder / "order.json", order)
        with _listening(folder / "done", heard):
            code, said = _started(folder, plan)
        if (path := folder / "answer.json").exists():
            return Reply(json.loads(path.read_text()))
        if (path := folder / "error.json").exists():
            return Reply(None, **json.loads(path.read_text()))
        how = f"it was killed by signal {-code}" if code < 0 else f"exit code {code}"
        return Reply(None, (said.strip().splitlines() or [how])[-1], 1)


def _started(folder: Path, plan: Plan) -> tuple[int, str]:
    if plan.has_ranks and plan.backend == "mpi":
        try:
            mpirun.ranks(MODULE, [str(folder)], plan.world)
        except ManyhandsError as error:
            return error.exit_code, str(error)
        return 0, ""
    return fresh_process.in_fresh_process(MODULE, str(folder), *(["launch"] if plan.has_ranks else []))


@contextmanager
def _listening(path: Path, heard: Callable[[int], None]) -> Iterator[None]:
    told = 0

    def look() -> None:
        nonlocal told
        size = path.stat().st_size if path.exists() else 0
        heard(size - told)
        told = size

    try:
        with looking(look, PAUSE):
            yield
    finally:
        look()
