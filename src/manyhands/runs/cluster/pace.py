"""Pace of a plan: what its workers take, measured on this machine or by the description of another."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from manyhands.cost.analytic import Analytic
from manyhands.cost.measured import Profile
from manyhands.data.load import load
from manyhands.graph.fuse import fuse
from manyhands.graph.graph import Graph
from manyhands.machine import described
from manyhands.machine.detect import detect
from manyhands.plan.axis import Axis
from manyhands.plan.plan import USES, Plan
from manyhands.progress import say
from manyhands.runs import find
from manyhands.runs.config import Config
from manyhands.runs.early import settle_early
from manyhands.runs.layers import graph_of
from manyhands.runs.links import known_links, known_wire
from manyhands.runs.profile import profiles
from manyhands.runs.simulated import Simulator
from manyhands.simulate.pace import Pace, all_reduce, between

FLOAT = 4  # bytes


@dataclass(frozen=True)
class Wanted:
    """Whose pace: a plan of workers, and perhaps servers, and the sizes of parts that a worker may get."""

    config: Config
    plan: Plan
    sizes: Sequence[int]

    @property
    def workers(self) -> int:
        return self.plan.axes[0].degree

    @property
    def servers(self) -> int:
        return self.plan.axes[0].servers

    @property
    def in_step(self) -> bool:
        """Whether all workers add up their gradients in each step, and there is no server."""
        return self.plan.axes[0].name == "data" and self.plan.consistency != "stale"

    def of(self, compute: Mapping[int, int], **times: Any) -> Pace:
        fault, seed = self.config.fault.read(), self.config.train.seed
        return Pace(self.workers, {0: 0, **compute}, servers=self.servers, fault=fault, seed=seed, **times)


def pace_of(config: Config, plan: Plan, machine: str, sizes: Sequence[int]) -> tuple[Plan, Pace]:
    """The plan with what it leaves open bound, and its pace."""
    wanted = Wanted(config, plan, [size for size in sizes if size])
    if machine == "here":
        return _measured(wanted)
    bound = plan.with_defaults(precision="fp32")
    return bound, _described(replace(wanted, plan=bound), machine, graph_of(config))


def own_options(plan: Plan) -> dict[str, Any]:
    """The options of a plan that say how a single process computes."""
    return {name: value for name, value in plan.said().items() if name not in USES}


def _described(wanted: Wanted, machine: str, graph: Graph) -> Pace:
    cluster, plan, workers = described.find(machine), wanted.plan, wanted.workers
    joined = fuse(graph)
    costs = Analytic(cluster.accelerator, joined.batch, plan.precision or "fp32", wanted.config.optim.name)
    compute = {size: sum(sum(costs.layer(each, size, 1, 1)) for each in joined.layers) for size in wanted.sizes}
    update, size = costs.update(joined.parameters), FLOAT * joined.parameters
    latency, rate = between(cluster, workers + wanted.servers)
    reduce = all_reduce(cluster, workers, size)
    if wanted.in_step and workers > 1:  # as `simulate` has it, where sums may go on while layers compute
        alike = Plan(axes=(Axis("data", workers),), precision=plan.precision)
        simulator = Simulator(joined, machine, cluster, wanted.config.optim.name)
        batch = wanted.config.train.batch_size
        step = simulator.predict(alike, batch).result.step_ns
        reduce = max(step - compute[-(-batch // workers)] - update, 0)
    return wanted.of(
        compute,
        update=update,
        apply=update,
        message=round(latency + size / rate),
        held=round(size / max(wanted.servers, 1) / rate),
        add=round(3 * size / cluster.accelerator.gb_per_s),
        reduce=reduce,
        overlap=cluster.overlap,
        duplex=all(level.duplex for level in cluster.levels),
        speeds=cluster.speeds,
        jitter=cluster.jitter,
    )


def _measured(wanted: Wanted) -> tuple[Plan, Pace]:
    """By what a part takes in as many processes as work at once, and by messages between two of them.

    Workers that outnumber the cores are timed as many at once as there are cores: how they share these is for the
    virtual clock.
    """
    config, plan, computer = wanted.config, wanted.plan, detect()
    cores, most = computer.physical_cores, max(wanted.sizes)
    kind = load(config.data.name, config.data).schema.kind
    open_plan = Plan(axes=(Axis("auto"),), **own_options(plan))
    threads = plan.threads or max(cores // plan.world, 1)
    ranks = min(wanted.workers, cores)
    made = [replace(each, threads=threads) for each in find.processes(open_plan, ranks, kind, computer)]
    plans = [settle_early(each, config, computer) for each in made]
    say(f"timing the layers in {ranks} process{'es' if ranks > 1 else ''}")
    taken = profiles(config, plans, [most], computer)
    profile, chosen = min(zip(taken, plans, strict=True), key=lambda each: _whole(each[0]))
    whole = _whole(profile) / profile.waiting  # who waits for whom is for the virtual clock, too
    compute = {size: round(whole * size / most) for size in wanted.sizes}
    bound = plan.with_defaults(**{name: getattr(chosen, name) for name in ("precision", "layout", "kernels")})
    update = profile.update
    times: dict[str, Any] = {"update": update, "apply": update, "add": profile.copy, "cores": cores, "overlap": False}
    times["jitter"] = profile.jitter
    size = FLOAT * fuse(graph_of(config)).parameters
    backend = plan.backend or "shm"
    if plan.is_conducted:
        servers = max(wanted.servers, 1)
        held = 1e9 * known_wire(size // servers, computer)
        ways = wanted.servers or 2  # who meets another sends its weights, and gets the other's
        times |= {"message": round(ways * held), "held": round(held)}
    elif plan.consistency == "stale" and backend == "shm":
        # Every worker puts its gradient where all can read it, and adds up all of them by itself.
        times |= {"publish": profile.copy, "apply": update + wanted.workers * profile.copy}
    elif wanted.workers > 1:
        # Of more ranks than cores the slower ones' turns would be in the sum, which the virtual clock counts by itself.
        started = min(wanted.workers, max(cores, 2))
        summed = 1e9 * known_links(backend, started, computer).gradients.seconds(size) * wanted.workers / started
        shared = backend == "shm" and plan.axes[0].name == "data"  # each updates its part of the weights
        times |= {"reduce": round(summed) + profile.copy, "apply": update // (wanted.workers if shared else 1)}
    return bound, wanted.of(compute, **times)


def _whole(profile: Profile) -> int:
    """A forward and a backward pass at the largest size, and what else a step does but the update."""
    return sum(sum(pairs[-1]) for pairs in profile.layers.values()) + profile.rest[-1]
