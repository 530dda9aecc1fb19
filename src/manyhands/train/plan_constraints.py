"""Plan constraints: refuses what does not go together, and decides what must be known before torch is imported."""

from manyhands.comm.ranks.rank_info import Place
from manyhands.config import Config
from manyhands.errors import ConfigError, PlanError
from manyhands.machine.machine import Machine
from manyhands.optim.options import TRUSTING
from manyhands.plan.consistency import EVERY, STALENESS
from manyhands.plan.plan import Plan
from manyhands.plan.resolve import devices_of
from manyhands.plan.stragglers import Fault
from manyhands.train.process_options import backend, pinned

RUNS = ("plain", "ddp", "serial", "data", "tensor", "pipeline", "owt", "server", "local", "gossip")
# What plans that cut layers do not do yet: options, and the values that they have then.
CUT: dict[str, tuple[str, ...]] = {
    "shard": ("none",),
    "compress": ("none",),
    "compile": ("off",),
    "capture": ("off",),
}
# The same for ranks whose weights are not all alike.
LOOSE: dict[str, tuple[str, ...]] = {"shard": ("none",), "compress": ("none",), "capture": ("off",)}


def resolve(plan: Plan, config: Config, machine: Machine, here: Place | None = None) -> Plan:
    """Bind the options of the process itself, and refuse what cannot run on this machine.

    `here` is this process's place among ranks that another launcher has started.
    """
    if plan.axes[0].name == "auto":
        raise PlanError("plan auto is to be found first: `manyhands plan` writes one; give that plan.toml")
    _check_average(plan, config)
    if not {axis.name for axis in plan.axes} <= set(RUNS):
        raise PlanError(f"plan {plan.name} cannot run yet: the engine runs {', '.join(RUNS)}")
    if plan.is_model_parallel:
        plan = _check_cut(plan.with_defaults(device="cpu"))
    if plan.boundary not in (None, "gather") and config.train.accumulate > 1:
        raise PlanError(
            f"plan {plan.name} with boundary={plan.boundary} takes a batch in turns already: leave train.accumulate="
            f"{config.train.accumulate} out"
        )
    if config.log.noise_steps is not None and not has_two_gradients(plan, config):
        raise PlanError(
            f"plan {plan.name} with log.noise: a step must have several gradients to compare; use data:N, or one "
            "device with train.accumulate=2, or leave log.noise out"
        )
    if plan.places:
        plan = _check_places(plan, machine)
    plan = _check_conducted(plan, config, here) if plan.is_async else _check_loose(plan)
    _check_fault(plan, config)
    if plan.backward not in (None, "whole"):
        if plan.compile == "on":
            raise PlanError(f"plan {plan}: a compiled backward pass is one piece; say compile=off or backward=whole")
        plan = plan.with_defaults(compile="off")
    if plan.device == "cuda" and not machine.gpus:
        raise PlanError("plan option device=cuda: there is no GPU on this machine; leave it out or say device=cpu")
    if here is not None and here.world > 1 and not plan.has_ranks:
        raise PlanError(f"plan {plan.name} runs in one process, {here.world} were started: say data:{here.world}")
    plan = plan.with_defaults(device="cuda" if machine.gpus else "cpu")
    if (plan.is_baseline or plan.feed == "loader") and config.loader.workers != "auto":
        plan = plan.with_defaults(workers=config.loader.workers)
    if plan.has_ranks:
        _check_ranks(plan, config, machine, here)
    if plan.has_ranks and not plan.is_async:
        plan = plan.with_defaults(backend=backend(plan, here))
        _check_backend(plan)
    plan = pinned(plan, config, machine, here)
    if plan.is_baseline:
        # As torchrun has it: one thread a process, where there are several.
        threads = 1 if plan.has_ranks and plan.world > 1 else None
        return plan.with_defaults(allocator="default", threads=threads)
    cores = min(map(len, plan.cores)) if plan.cores else machine.physical_cores
    if plan.has_ranks and plan.hands > len(machine.cores):  # they share all cores
        cores = 1
    return plan.with_defaults(threads=cores, allocator="keep" if plan.device == "cpu" else "default")


def _check_average(plan: Plan, config: Config) -> None:
    """A mean of the weights is kept of weights that are the same wherever they are."""
    asked = {key: getattr(config.train, key) for key in ("ema", "swa") if getattr(config.train, key) is not None}
    apart = {axis.name for axis in plan.axes} & {"server", "local", "gossip"} or plan.consistency in ("async", "stale")
    if asked and apart:
        ((key, value),) = asked.items()
        raise PlanError(
            f"train.{key}={value} does not go with plan {plan.name}, whose workers have other weights than each other: "
            "leave it out, or use serial, data:N or another plan in step"
        )


# What processes that keep no step do not do yet: options, and the values that they have then.
APART: dict[str, tuple[str, ...]] = {
    "device": ("cpu",),
    "backend": ("gloo",),
    "shard": ("none",),
    "compress": ("none",),
    "capture": ("off",),
    "feed": ("device", "host"),
}


def _check_conducted(plan: Plan, config: Config, here: Place | None) -> Plan:
    """Refuse what cannot be done where processes do not keep step, and say what is left open about it."""
    if here is not None:
        raise PlanError(f"plan {plan.name} starts its processes itself: start manyhands alone, without a launcher")
    _refuse(plan, APART)
    plan = plan.with_defaults(device="cpu", capture="off")
    if plan.axes[0].name == "gossip":
        return plan.with_defaults(topology="ring")
    plan = plan.with_defaults(consistency="sync" if plan.staleness is None else "stale")
    if plan.consistency == "stale":
        plan = plan.with_defaults(staleness=STALENESS)
    elif plan.staleness is not None:
        raise PlanError(f"plan option staleness={plan.staleness} is for consistency=stale: leave one of them out")
    if plan.adapt == "on" and plan.consistency != "async":
        raise PlanError(f"plan option adapt=on is for consistency=async, this is {plan.consistency}: leave it out")
    if config.optim.name in TRUSTING:
        raise PlanError(
            f"optim.name={config.optim.name} goes by the norms of whole tensors, of which a server has a part: "
            f"use another optimizer, or data:{plan.hands}"
        )
    if config.train.clip is not None and plan.consistency != "async":
        raise PlanError(
            f"train.clip={config.train.clip} needs the sum of all gradients, which plan {plan.name} has on "
            f"{plan.axes[0].servers} servers: leave it out, or say data:{plan.axes[0].degree}"
        )
    return plan


def has_two_gradients(plan: Plan, config: Config) -> bool:
    """Whether a step has gradients of parts of its batch, so that the noise in them can be measured."""
    if not plan.has_ranks:
        return config.train.accumulate > 1
    by_sample = [axis.name for axis in plan.axes] == ["data"] and not plan.is_model_parallel
    return by_sample and plan.world > 1 and plan.shard != "full" and plan.consistency in (None, "sync")


def _check_cut(plan: Plan) -> Plan:
    """Refuse what cannot be done with layers in parts."""
    if plan.layers and not plan.has_ranks:
        raise PlanError(f"plan {plan.name} with [[layers]] has no ranks: say data:N, tensor:N or another with N ranks")
    if devices_of(plan) > plan.world:
        last = devices_of(plan) - 1
        raise PlanError(f"plan {plan.name}: [[layers]] name device {last}, there are {plan.world} ranks, from 0 on")
    _refuse(plan, CUT)
    return plan.with_defaults(compile="off", capture="off")


def _refuse(plan: Plan, options: dict[str, tuple[str, ...]]) -> None:
    for option, allowed in options.items():
        value = getattr(plan, option)
        if value is not None and value not in allowed:
            raise PlanError(f"plan {plan.name} with {option}={value} cannot run yet: {option}={allowed[0]} can")


def _check_loose(plan: Plan) -> Plan:
    """Bind what is open of plans whose ranks have weights of their own age, and refuse what does not go with them."""
    if plan.staleness is not None and plan.consistency != "stale":
        raise PlanError(
            f"plan {plan}: staleness={plan.staleness} is for consistency=stale: say that too, or leave it out"
        )
    if plan.axes[0].name == "data" and plan.consistency == "async":
        raise PlanError(
            f"plan {plan}: ranks that wait for nobody need a server: say server:{plan.world}+1,consistency=async"
        )
    if plan.axes[0].name == "local":
        plan = plan.with_defaults(every=EVERY, after=0, average="mean")
    elif plan.consistency == "stale":
        plan = plan.with_defaults(staleness=STALENESS)
    else:
        return plan
    if plan.is_model_parallel:
        raise PlanError(f"plan {plan}: layers in parts keep step; leave consistency=stale out, or say data:N alone")
    _refuse(plan, LOOSE)
    return plan


def _check_fault(plan: Plan, config: Config) -> None:
    """Refuse to slow a rank that is not there, or whose steps do not let themselves be slowed."""
    fault = config.fault.read()
    if fault == Fault():
        return
    if not plan.has_ranks:
        raise ConfigError(f"fault.slow_rank and fault.slow_steps need ranks, plan {plan.name} has none: say data:N")
    if plan.is_model_parallel or plan.capture == "on":
        why = "plans that cut layers" if plan.is_model_parallel else "captured steps (capture=on)"
        raise ConfigError(f"fault.slow_rank and fault.slow_steps do not slow {why}: say data:N,capture=off")
    fault.check(plan.hands)


def _check_places(plan: Plan, machine: Machine) -> Plan:
    """A step that goes to and fro between devices is neither compiled nor captured."""
    if not machine.gpus and "cuda" in (device for _, device in plan.places):
        raise PlanError("places with device=cuda: there is no GPU on this machine; leave them out")
    for option in ("compile", "capture"):
        if getattr(plan, option) == "on":
            raise PlanError(f"plan {plan.name} with places: {option}=on does not go with them; leave it out")
    return plan.with_defaults(compile="off", capture="off")


def _check_ranks(plan: Plan, config: Config, machine: Machine, here: Place | None) -> None:
    if plan.hands > config.train.batch_size and not plan.is_model_parallel:
        raise PlanError(f"plan {plan.name} has more ranks than the batch of {config.train.batch_size} has samples")
    if here is not None and here.world != plan.world:
        raise PlanError(f"plan {plan.name} has {plan.world} ranks, {here.world} were started: make the numbers equal")
    local = here.local_world if here else plan.world
    if plan.device == "cuda" and not plan.is_model_parallel and local > len(machine.gpus):
        raise PlanError(
            f"plan {plan.name} needs a GPU for each of {local} ranks, this machine has {len(machine.gpus)}: "
            "use fewer ranks or device=cpu"
        )


def _check_backend(plan: Plan) -> None:
    said = f"plan {plan}: backend={plan.backend}"
    if plan.is_model_parallel and plan.device == "cuda":  # by way of the host (comm.host_staged); ranks may share a GPU
        if plan.backend != "gloo":
            raise PlanError(f"{said} with device=cuda: layers in parts of GPUs go over gloo; leave backend out")
    elif (plan.backend == "nccl") != (plan.device == "cuda"):
        raise PlanError(f"{said} with device={plan.device}: GPUs use nccl, the CPU gloo, shm or mpi")
    if plan.shard == "full":
        if plan.backend not in ("gloo", "nccl"):
            raise PlanError(f"{said} with shard=full: fully sharded weights need gloo or nccl; leave backend out")
        if plan.compress not in (None, "none"):
            raise PlanError(f"plan {plan}: compress={plan.compress} does not go with shard=full: leave one out")
        if plan.layout == "channels_last":
            raise PlanError(f"plan {plan}: shard=full needs layout=contiguous; leave layout out")
    if plan.backend == "shm" and plan.compress not in (None, "none") and not plan.is_baseline:
        raise PlanError(f"{said} with compress={plan.compress}: shared memory sends nothing; say backend=gloo")
    if plan.is_baseline and (plan.compress not in (None, "none") or plan.shard not in (None, "none")):
        raise PlanError(f"plan {plan}: {plan.name} is PyTorch's default; for shard and compress say data:{plan.world}")
