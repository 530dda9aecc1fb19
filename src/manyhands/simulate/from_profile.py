"""From profile: the step of a plan on this machine, simulated from what its layers and links cost here."""

from manyhands.config import Config
from manyhands.graph.graph import Graph
from manyhands.machine.cluster import Accelerator, Cluster, Level
from manyhands.machine.link import Link
from manyhands.machine.machine import Machine
from manyhands.plan.plan import Plan
from manyhands.plan.presets import splits
from manyhands.plan.resolve import splits_of
from manyhands.plan.sharding import on
from manyhands.plan.stages import pipeline_of
from manyhands.simulate.cost.layer_profile import Profile
from manyhands.simulate.cost.links import Links
from manyhands.simulate.cost.profiled import Measured
from manyhands.simulate.simulator import Prediction, check_degrees, micro_batches
from manyhands.simulate.step.result import predict


def predicted(
    graph: Graph, plan: Plan, profile: Profile, links: Links | None, config: Config, machine: Machine
) -> Prediction:
    """The step of a plan of one process or of data parallelism, from what its layers and its links cost."""
    late, batch = plan.backend == "shm", config.train.batch_size
    link = links.gradients if links else None
    costs = Measured(profile, graph.parameters, plan.precision or "fp32", config.optim.name, link, shares_update=late)
    cluster = _cluster(plan, machine, links.level() if links else Level(1, 1.0, 0.0), late=late)
    chosen = splits(plan.axes, graph, batch)
    result = predict(graph, chosen, costs, cluster, batch)
    alone = predict(graph, [on(0)] * len(graph.layers), costs, cluster.of(1), max(batch // plan.world, 1))
    return Prediction(plan, "here", cluster, chosen, result, alone)


def predicted_cut(
    graph: Graph, plan: Plan, profile: Profile, links: tuple[Link, Link], config: Config, machine: Machine
) -> Prediction:
    """The step of a plan that cuts layers, over links for sums and for messages; micro-batches that it leaves open are
    as many as is fastest."""
    batch, (costs, cluster) = config.train.batch_size, cut_costs(graph, plan, profile, links, config, machine)
    chosen = splits_of(plan, graph, batch, plan.world, lambda layer: sum(costs.layer(layer, batch, 1, 1)))
    check_degrees(plan, graph, chosen, cluster.devices)
    pipeline = pipeline_of(plan, chosen)
    tried = [
        (number, predict(graph, chosen, costs, cluster, batch, number, pipeline))
        for number in micro_batches(plan, graph, chosen, batch)
    ]
    micro, result = min(tried, key=lambda each: each[1].step_ns)
    has_stages = any(axis.name == "pipeline" for axis in plan.axes)
    bound = plan.with_defaults(microbatches=micro) if has_stages else plan
    alone = predict(graph, [on(0)] * len(graph.layers), costs, cluster.of(1), max(batch // plan.world, 1))
    return Prediction(bound, "here", cluster, chosen, result, alone)


def cut_costs(
    graph: Graph, plan: Plan, profile: Profile, links: tuple[Link, Link], config: Config, machine: Machine
) -> tuple[Measured, Cluster]:
    """What layers in parts cost, and what they are spread over."""
    adds, sends = links
    costs = Measured(profile, graph.parameters, plan.precision or "fp32", config.optim.name, adds)
    level = Level(1, sends.sustained_gb_per_s, sends.latency_us)  # what layers hand over are megabytes
    return costs, _cluster(plan, machine, level, late=True)  # gradients are added up after the last backward pass


def _cluster(plan: Plan, machine: Machine, level: Level, *, late: bool) -> Cluster:
    device = Accelerator(machine.cpu, machine.memory_bytes // plan.world, {"fp32": 1.0}, 1.0)
    # On a CPU whoever moves data keeps a core from computing.
    return Cluster(plan.world, device, (level,), overlap=False, late=late, name="here")
