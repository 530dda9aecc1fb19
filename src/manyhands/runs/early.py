"""What a plan must know before torch is imported: device, cores, threads, allocator."""

from manyhands.errors import PlanError
from manyhands.machine.machine import Machine
from manyhands.plan.plan import Plan
from manyhands.runs.config import Config

RUNS = ("plain", "serial", "data")


def settle_early(plan: Plan, config: Config, machine: Machine) -> Plan:
    """Bind the options of the process itself, and refuse what cannot run on this machine."""
    if [axis.name for axis in plan.axes] not in [[name] for name in RUNS]:
        raise PlanError(f"plan {plan.name} cannot run yet: the engine runs plain, serial and data:N")
    if plan.device == "cuda" and not machine.gpus:
        raise PlanError("plan option device=cuda: there is no GPU on this machine; leave it out or say device=cpu")
    plan = plan.with_defaults(device="cuda" if machine.gpus else "cpu", cores=_affinity(config))
    _check_cores(plan, machine)
    if plan.is_baseline or plan.feed == "loader":
        plan = plan.with_defaults(workers=config.loader.workers)
    if plan.world > 1:
        plan = _over_ranks(plan, config, machine)
    if plan.is_baseline:
        return plan.with_defaults(allocator="default")
    cores = len(plan.cores[0]) if plan.cores else machine.physical_cores
    return plan.with_defaults(threads=cores, allocator="keep" if plan.device == "cpu" else "default")


def _over_ranks(plan: Plan, config: Config, machine: Machine) -> Plan:
    """Cores for every rank: whole physical cores first, neighbours together."""
    if plan.device == "cuda" or plan.backend not in (None, "shm"):
        raise PlanError(f"plan {plan} cannot run yet: data:N runs on CPU cores through shared memory (backend=shm)")
    if plan.world > config.train.batch_size:
        raise PlanError(f"plan {plan.name} has more ranks than the batch of {config.train.batch_size} has samples")
    if plan.cores is None:
        ids = [
            core.id for core in sorted(machine.cores, key=lambda core: (core.node, core.socket, core.physical, core.id))
        ]
        if plan.world > len(ids):
            raise PlanError(f"plan {plan.name} needs {plan.world} cores, this machine has {len(ids)}: use fewer ranks")
        each = len(ids) // plan.world
        plan = plan.with_defaults(cores=tuple(tuple(ids[r * each : (r + 1) * each]) for r in range(plan.world)))
    elif len(plan.cores) != plan.world:
        raise PlanError(f"cores are given for {len(plan.cores)} ranks, plan {plan.name} has {plan.world}")
    return plan.with_defaults(backend="shm")


def _affinity(config: Config) -> tuple[tuple[int, ...], ...] | None:
    text = config.cpu.affinity
    if text is None:
        return None
    words = text.split(",")
    if not all(word.strip().isdecimal() for word in words):
        raise PlanError(f"cpu.affinity={text}: write core numbers such as 0,1")
    return (tuple(int(word) for word in words),)


def _check_cores(plan: Plan, machine: Machine) -> None:
    have = {core.id for core in machine.cores}
    for rank, cores in enumerate(plan.cores or ()):
        if not cores or not set(cores) <= have:
            here = ", ".join(map(str, sorted(have)))
            raise PlanError(f"cores {list(cores)} of rank {rank} are not all here: cores of this machine are {here}")
