"""Worker: what a child can be asked for."""

import json
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manyhands.comm.launch import elastic
from manyhands.comm.ranks.rank_info import place
from manyhands.comm.rendezvous import leave
from manyhands.config import from_table as config_from_table
from manyhands.errors import ManyhandsError
from manyhands.files import write_json
from manyhands.plan.plan import Plan, from_table
from manyhands.progress import set_quiet
from manyhands.tune import loader_workers_worker, lr_range_worker, throughput_worker, time_to_accuracy
from manyhands.tune.child_process import Task
from manyhands.tune.memory_limit import guard

if TYPE_CHECKING:
    pass
from manyhands.tune.child_process import MODULE

WORKS: dict[str, Callable[[Task], dict[str, Any]]] = {
    "throughput": throughput_worker.work,
    "reference": time_to_accuracy.reference,
    "pursuit": time_to_accuracy.work,
    "ramp": lr_range_worker.work,
    "loaders": loader_workers_worker.work,
}


def main(folder: Path, launches: bool) -> None:
    """Launch the ranks, or be one of the processes."""
    set_quiet(True)
    order = json.loads((folder / "order.json").read_text())
    plan = from_table(order["plan"], "order.json")
    if launches:
        elastic.ranks(MODULE, [str(folder)], plan.world)
        return
    try:
        value = _work(folder, order, plan)
    except Exception as error:
        line = (str(error).strip().splitlines() or [""])[0]
        told = line if isinstance(error, ManyhandsError) else f"{type(error).__name__}: {line}"
        with suppress(OSError, ManyhandsError):
            write_json(folder / "error.json", {"error": told, "exit_code": getattr(error, "exit_code", 1)})
        raise
    if value is not None:
        write_json(folder / "answer.json", value)
    leave()


def _work(folder: Path, order: dict[str, Any], plan: Plan) -> dict[str, Any] | None:
    """What was asked for, on the first rank."""
    from manyhands.comm.process_setup import setup_process

    here, config = place(), config_from_table(order["config"], "order.json")
    setup_process(plan, config, here)
    from manyhands.comm.ranks.rank_group import Team
    from manyhands.data.load import load
    from manyhands.train.job import check_sizes
    from manyhands.tune.worker import WORKS

    team = Team(here.rank, here.world) if here and plan.has_ranks else Team()
    dataset = load(config.data.name, config.data)
    check_sizes(config, dataset)
    if plan.device != "cuda":
        guard(team.world)
    value = WORKS[order["work"]](Task(config, plan, order["details"], dataset, team, folder))
    return value if team.is_leader else None


if __name__ == "__main__":
    main(Path(sys.argv[1]), "launch" in sys.argv[2:])
