"""Launch: a user's own training script, run by the ranks of a plan."""

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from manyhands.comm.launch import elastic, mpirun
from manyhands.comm.ranks.rank_info import Place, place
from manyhands.config import Config, with_values
from manyhands.errors import InputError, PlanError
from manyhands.machine.detect import detect
from manyhands.plan.axis import Axis
from manyhands.plan.plan import Plan, from_table, to_table
from manyhands.train.plan_constraints import resolve

PLAN = "MANYHANDS_PLAN"  # the plan of the ranks, as JSON

# A script's serial is one rank: what `parallelize` gives is then the same whatever the plan.
AS_RANKS = {"serial": "data", "plain": "ddp"}
# The rest is the script's own: how it feeds, and whether it compiles.
OBEYED = ("device", "precision", "layout", "allocator", "threads", "cores", "backend", "compress", "shard")


def launch_script(path: Path, arguments: Sequence[str], plan: Plan) -> Plan:
    """Run a script to its end by the ranks of a plan; gives the plan as they obeyed it."""
    if not path.is_file():
        raise InputError(f"there is no script {path}: give the path of a Python file")
    if path.suffix != ".py":
        raise InputError(f"{path} is not a Python script: its name must end in .py")
    if (here := place()) is not None:
        raise InputError(f"this is rank {here.rank} of {here.world} already: let that launcher run {path} itself")
    plan = settled(plan)
    order, told = [str(path), *arguments], {PLAN: json.dumps(to_table(plan))}
    ranks = mpirun.ranks if plan.backend == "mpi" else elastic.ranks
    ranks("manyhands.train.user_script.worker", order, plan.world, environment=told, script=True)
    return plan


def settled(plan: Plan, here: Place | None = None) -> Plan:
    """A plan as the ranks of a script obey it; `here` is this process's place among those that have started."""
    for name, value in plan.said().items():
        if name not in OBEYED:
            raise PlanError(f"plan option {name}={value} is for manyhands train: a script takes {', '.join(OBEYED)}")
    if plan.is_model_parallel or plan.axes[0].name == "local":
        raise PlanError(f"plan {plan.name} is for manyhands train: a script takes data:N and ddp:N")
    if plan.shard == "full":
        raise PlanError("plan option shard=full is for manyhands train: a script takes shard=optimizer")
    if plan.precision == "fp64":
        raise PlanError("plan option precision=fp64 is for manyhands train: call model.double() in the script")
    machine = detect()
    axes = tuple(Axis(AS_RANKS.get(axis.name, axis.name), axis.degree, axis.servers) for axis in plan.axes)
    plan = replace(plan, axes=axes)
    if here is not None:  # who has started them has given them their cores
        plan = plan.with_defaults(cores=(tuple(core.id for core in machine.cores),) * here.local_world)
    # The batch is the script's.
    return resolve(plan, with_values(Config(), {"train.batch_size": plan.world}), machine, here)


def launched() -> Plan | None:
    """The plan of the ranks among which `launch_script` has started this process."""
    told = os.environ.get(PLAN)
    return from_table(json.loads(told), PLAN) if told else None
