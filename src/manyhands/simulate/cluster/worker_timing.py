"""Worker timing: what a plan's workers take on a described machine, and what has to be known to time any."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from manyhands.config import Config
from manyhands.graph.coarsen import coarsen
from manyhands.graph.graph import Graph
from manyhands.machine import cluster_toml
from manyhands.plan.axis import Axis
from manyhands.plan.options import USES
from manyhands.plan.plan import Plan
from manyhands.simulate.cost.roofline import Analytic
from manyhands.simulate.model_graph import graph_of
from manyhands.simulate.simulator import Simulator
from manyhands.simulate.worker_timing import WorkerTiming, all_reduce, between

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

    def of(self, compute: Mapping[int, int], **times: Any) -> WorkerTiming:
        fault, seed = self.config.fault.read(), self.config.train.seed
        return WorkerTiming(self.workers, {0: 0, **compute}, servers=self.servers, fault=fault, seed=seed, **times)


def described_pace(wanted: Wanted, machine: str) -> tuple[Plan, WorkerTiming]:
    """The plan with what it leaves open bound, and its pace on a machine that is described."""
    bound = wanted.plan.with_defaults(precision="fp32")
    return bound, _described(replace(wanted, plan=bound), machine, graph_of(wanted.config))


def own_options(plan: Plan) -> dict[str, Any]:
    """The options of a plan that say how a single process computes."""
    return {name: value for name, value in plan.said().items() if name not in USES}


def _described(wanted: Wanted, machine: str, graph: Graph) -> WorkerTiming:
    cluster, plan, workers = cluster_toml.find(machine), wanted.plan, wanted.workers
    joined = coarsen(graph)
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
