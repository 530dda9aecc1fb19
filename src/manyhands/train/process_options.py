"""Process options: what of a plan must be known before torch is imported: backend, cores, threads."""

import platform
from dataclasses import replace

from manyhands.comm.ranks.rank_info import Place, is_pinned
from manyhands.config import Config
from manyhands.errors import PlanError
from manyhands.machine import affinity
from manyhands.machine.machine import Machine
from manyhands.plan.options import BY_RANK
from manyhands.plan.plan import Plan


def backend(plan: Plan, here: Place | None) -> str:
    """The fastest that can do it: shared memory, unless ranks have GPUs, are on several hosts or must send less."""
    if plan.device == "cuda":
        return "gloo" if plan.is_model_parallel else "nccl"
    apart = here is not None and here.local_world != here.world
    sends = plan.shard == "full" or plan.compress not in (None, "none") or plan.is_baseline
    return "gloo" if sends or apart or platform.machine() not in ("x86_64", "AMD64") else "shm"


def pinned(plan: Plan, config: Config, machine: Machine, here: Place | None) -> Plan:
    """Cores of every rank of this host. The references are pinned only where that is asked for."""
    ranks = here.local_world if here else plan.world
    if plan.cores is None and config.cpu.affinity is not None:
        plan = replace(plan, cores=affinity.parse(config.cpu.affinity, machine, ranks))
    elif plan.cores is None and plan.has_ranks and not plan.is_baseline:
        mine = tuple(core.id for core in machine.cores)
        dealt = (
            (mine,) * ranks if here and is_pinned() else affinity.deal(machine, plan.hands if plan.is_async else ranks)
        )
        plan = replace(plan, cores=(*dealt, *((mine,) * (ranks - len(dealt)))))  # servers go where there is room
    for key in BY_RANK:
        _check_cores(plan, key, machine, ranks)
    if plan.cores is None:
        return plan
    for rank, cores in enumerate(plan.cores):
        if (plan.threads or 1) > len(cores):
            raise PlanError(
                f"plan option threads={plan.threads}: rank {rank} has the cores {list(cores)}; "
                f"use at most {len(cores)}, or leave it out"
            )
    if plan.feed == "loader" and plan.workers and plan.loader_cores is None:
        own, beside = affinity.make_room(plan.cores, machine, plan.workers)
        plan = replace(plan, cores=own, loader_cores=beside)
    return plan


def _check_cores(plan: Plan, key: str, machine: Machine, ranks: int) -> None:
    given = getattr(plan, key)
    if given is None:
        return
    if len(given) != ranks:
        raise PlanError(f"{key} are given for {len(given)} ranks, plan {plan.name} has {ranks} on this host")
    have = sorted(core.id for core in machine.cores)
    for rank, cores in enumerate(given):
        if not cores or not set(cores) <= set(have):
            here_are = ", ".join(map(str, have))
            raise PlanError(
                f"{key} {list(cores)} of rank {rank} are not all here: cores of this machine are {here_are}"
            )
