"""What a plan must know before torch is imported: device, cores, threads, allocator."""

from manyhands.errors import PlanError
from manyhands.machine.machine import Machine
from manyhands.plan.plan import Plan
from manyhands.runs.config import Config

RUNS = ("plain", "serial")


def settle_early(plan: Plan, config: Config, machine: Machine) -> Plan:
    """Bind the options of the process itself, and refuse what cannot run on this machine."""
    if plan.name not in RUNS:
        raise PlanError(f"plan {plan.name} cannot run yet: the engine runs {' and '.join(RUNS)}")
    if plan.device == "cuda" and not machine.gpus:
        raise PlanError("plan option device=cuda: there is no GPU on this machine; leave it out or say device=cpu")
    plan = plan.with_defaults(
        device="cuda" if machine.gpus else "cpu",
        workers=config.loader.workers,
        cores=_affinity(config, machine),
    )
    if plan.is_baseline:
        return plan.with_defaults(allocator="default")
    cores = len(plan.cores[0]) if plan.cores else machine.physical_cores
    return plan.with_defaults(threads=cores, allocator="keep" if plan.device == "cpu" else "default")


def _affinity(config: Config, machine: Machine) -> tuple[tuple[int, ...], ...] | None:
    text = config.cpu.affinity
    if text is None:
        return None
    have = {core.id for core in machine.cores}
    words = text.split(",")
    if not all(word.strip().isdecimal() and int(word) in have for word in words):
        raise PlanError(f"cpu.affinity={text}: cores of this machine are {', '.join(map(str, sorted(have)))}")
    return (tuple(int(word) for word in words),)
