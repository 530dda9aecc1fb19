"""Worker timing: what the workers of a plan take on this machine, by layers, links and messages that are timed here."""

from dataclasses import replace
from typing import Any

from manyhands.data.load import load
from manyhands.graph.coarsen import coarsen
from manyhands.machine.detect import detect
from manyhands.measure.layer_profiler import profiles
from manyhands.measure.link_timing import known_links, known_wire
from manyhands.plan.axis import Axis
from manyhands.plan.plan import Plan
from manyhands.progress import say
from manyhands.simulate.cluster.worker_timing import FLOAT, Wanted, described_pace, own_options
from manyhands.simulate.cost.layer_profile import Profile
from manyhands.simulate.model_graph import graph_of
from manyhands.simulate.worker_timing import WorkerTiming
from manyhands.train.plan_constraints import resolve
from manyhands.tune.plan import candidates


def pace_of(wanted: Wanted, machine: str) -> tuple[Plan, WorkerTiming]:
    """The plan with what it leaves open bound, and its pace: here, or on a machine that is described."""
    return measured_pace(wanted) if machine == "here" else described_pace(wanted, machine)


def measured_pace(wanted: Wanted) -> tuple[Plan, WorkerTiming]:
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
    made = [replace(each, threads=threads) for each in candidates.processes(open_plan, ranks, kind, computer)]
    plans = [resolve(each, config, computer) for each in made]
    say(f"timing the layers in {ranks} process{'es' if ranks > 1 else ''}")
    taken = profiles(config, plans, [most], computer)
    profile, chosen = min(zip(taken, plans, strict=True), key=lambda each: _whole(each[0]))
    whole = _whole(profile) / profile.waiting  # who waits for whom is for the virtual clock, too
    compute = {size: round(whole * size / most) for size in wanted.sizes}
    bound = plan.with_defaults(**{name: getattr(chosen, name) for name in ("precision", "layout", "kernels")})
    update = profile.update
    times: dict[str, Any] = {"update": update, "apply": update, "add": profile.copy, "cores": cores, "overlap": False}
    times["jitter"] = profile.jitter
    size = FLOAT * coarsen(graph_of(config)).parameters
    backend = plan.backend or "shm"
    if plan.is_async:
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
