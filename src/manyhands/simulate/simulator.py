"""Simulator: what a plan would do on a machine, for the model and the data of a config."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from manyhands.config import Config
from manyhands.errors import InputError, PlanError, choices
from manyhands.graph.coarsen import coarsen
from manyhands.graph.graph import Graph
from manyhands.machine import cluster_toml
from manyhands.machine.cluster import Cluster
from manyhands.plan.plan import Plan
from manyhands.plan.resolve import devices_of, splits_of
from manyhands.plan.sharding import Split, on
from manyhands.plan.stages import pipeline_of
from manyhands.simulate.cost.roofline import Analytic
from manyhands.simulate.model_graph import graph_of
from manyhands.simulate.step.arrays import Problem
from manyhands.simulate.step.build import make
from manyhands.simulate.step.result import Result, predict
from manyhands.simulate.step.task_order import gpipe
from manyhands.train.checks.sample_mixing import has_batch_norm

KNOWN = ("plain", "serial", "ddp", "data", "tensor", "pipeline", "owt")
# Values of options that the simulator plays; others would be another timeline, options not named here change none.
PLAYS: dict[str, tuple[str, ...]] = {
    "shard": ("none",),
    "compress": ("none",),
    "boundary": ("gather",),
    "consistency": ("sync",),
    "staleness": (),
    "precision": cluster_toml.PRECISIONS,
}
MOST_DEVICES = 4096
MOST_MICRO = 4  # micro-batches that are tried for each stage, where a plan leaves their number open
MB, GB = 2**20, 2**30

Row = dict[str, Any]  # of a sweep, as JSON has it


@dataclass(frozen=True)
class Prediction:
    """A plan with its open options bound, and what is predicted of it."""

    plan: Plan
    machine: str
    cluster: Cluster
    splits: tuple[Split, ...]
    result: Result
    alone: Result  # one such device with its share of the batch

    @property
    def speedup(self) -> float:
        return self.result.samples_per_s / self.alone.samples_per_s

    def to_json(self) -> dict[str, Any]:
        return {
            "plan": str(self.plan),
            "machine": self.machine,
            "devices": self.cluster.devices,
            "batch_size": self.result.batch,
            "traced": self.result.graph.traced,
            "step_ms": self.result.step_ms,
            "samples_per_s": self.result.samples_per_s,
            "speedup_over_one_device": self.speedup,
            "one_device_step_ms": self.alone.step_ms,
            "memory_mb": [used / MB for used in self.result.memory_bytes],
            "idle_fraction": self.result.idle_fraction,
            "exposed_comm_ms": self.result.exposed_ns / 1e6,
        }


class Predicts(Protocol):
    """What predicts the plans of a config on one machine."""

    def predict(self, plan: Plan, batch: int, devices: int | None = None) -> Prediction: ...


@dataclass(frozen=True)
class Simulator:
    """A model's layers on a machine: what stays the same whatever the plan and the number of devices."""

    graph: Graph
    machine: str
    cluster: Cluster
    optimizer: str = "adam"
    one_device_ms: float | None = None  # a step of one device with its share of the batch, where that is known
    apart: Graph | None = None  # the layers before small ones were joined into others

    @classmethod
    def of(cls, config: Config, machine: str, one_device_ms: float | None = None) -> "Simulator":
        if one_device_ms is not None and not one_device_ms > 0:
            raise InputError(f"--one-device-ms {one_device_ms}: a number above zero is needed")
        cluster = cluster_toml.find(machine)
        apart = graph_of(config)
        return cls(coarsen(apart), machine, cluster, config.optim.name, one_device_ms, apart)

    def predict(self, plan: Plan, batch: int, devices: int | None = None) -> Prediction:
        """Simulate a plan on so many devices, or on as many as it needs; one that does not fit is refused."""
        check(plan)
        cluster = self.cluster.of(devices_for(plan, devices))
        graph = self.apart if self.apart and _names_joined(plan, self.graph) else self.graph
        costs = self._costs(cluster, plan, batch)
        splits = splits_of(plan, graph, batch, cluster.devices, lambda layer: sum(costs.layer(layer, batch, 1, 1)))
        check_degrees(plan, graph, splits, cluster.devices)
        pipeline = pipeline_of(plan, splits)
        tried = [
            (number, predict(graph, splits, costs, cluster, batch, number, pipeline))
            for number in micro_batches(plan, graph, splits, batch)
        ]
        micro, result = min(tried, key=lambda each: (each[1].missing_bytes > 0, each[1].step_ns))
        _check_memory(plan, result, cluster)
        bound = plan if "pipeline" not in _names(plan) else plan.with_defaults(microbatches=micro)
        return Prediction(bound, self.machine, cluster, splits, result, self._alone(costs, batch, cluster.devices))

    def problem(self, plan: Plan, batch: int, devices: int) -> Problem:
        """What a search over the splits of layers plays."""
        cluster = self.cluster.of(devices)
        return make(self.graph, self._costs(cluster, plan, batch), cluster, batch, gpipe(self.graph, 1))

    def _alone(self, costs: Analytic, batch: int, devices: int) -> Result:
        """One device with its share of the batch."""
        share = max(round(batch / devices), 1)
        return predict(self.graph, [on(0)] * len(self.graph.layers), costs, self.cluster.of(1), share)

    def _costs(self, cluster: Cluster, plan: Plan, batch: int) -> Analytic:
        """What layers cost on this machine."""
        costs = Analytic(cluster.accelerator, self.graph.batch, plan.precision or "fp32", self.optimizer)
        if self.one_device_ms is None:
            return costs
        alone = self._alone(costs, batch, cluster.devices)
        board = alone.simulation.board
        update = int(board.done[0] - board.begun[0])  # by the memory's rate alone
        layers = round(1e6 * self.one_device_ms) - update
        if layers <= 0:
            raise InputError(
                f"--one-device-ms {self.one_device_ms}: the update of the weights alone takes {update / 1e6:.3f} ms "
                f"on {cluster.accelerator.name}; give more"
            )
        for _ in range(2):  # the second time puts right what rounding to nanoseconds did to very short layers
            costs = replace(costs, slowdown=costs.slowdown * layers / (alone.step_ns - update))
            alone = self._alone(costs, batch, cluster.devices)
        return costs


def check(plan: Plan) -> None:
    """Refuse what the simulator does not play."""
    if plan.places:
        raise PlanError(f"plan {plan.name} with places cannot be simulated: leave them out, or name devices in layers")
    for name in _names(plan):
        if name not in KNOWN:
            raise PlanError(
                f"plan {plan.name} cannot be simulated: {choices(name, KNOWN)}; a mesh such as data:2,tensor:2; "
                "or a plan.toml; with --accuracy also server, local and gossip"
            )
    for option, allowed in PLAYS.items():
        value = getattr(plan, option)
        if value is not None and value not in allowed:
            said = f"only {' and '.join(allowed)} can; " if allowed else ""
            raise PlanError(f"plan option {option}={value} cannot be simulated: {said}leave it out")


def _names_joined(plan: Plan, graph: Graph) -> bool:
    """Whether a plan names a layer that was joined into another, such as a pool, and not that other one."""
    joined = [(layer, replace(layer, members=())) for layer in graph.layers if layer.members]
    return any(named.matches(layer) and not named.matches(own) for named in plan.layers for layer, own in joined)


def _names(plan: Plan) -> list[str]:
    return [axis.name for axis in plan.axes]


def devices_for(plan: Plan, devices: int | None) -> int:
    """So many devices, or as many as the plan needs."""
    needed = devices_of(plan)
    devices = needed if devices is None else devices
    if devices > MOST_DEVICES:
        raise InputError(f"{devices} devices: at most {MOST_DEVICES:,} can be simulated")
    if 1 <= devices < needed:
        raise PlanError(f"plan {plan.name} needs {needed} devices, --devices {devices}: make the numbers equal")
    return devices


def check_degrees(plan: Plan, graph: Graph, splits: Sequence[Split], devices: int) -> None:
    for layer, split in zip(graph.layers, splits, strict=True):
        for degree in (split.sample, split.parameter * split.reduction):
            if devices % degree:
                raise PlanError(
                    f"plan {plan.name} cuts layer {layer.name} into {degree} on {devices} devices: the simulator needs "
                    f"a number of devices that {degree} divides, such as {degree * -(-devices // degree)}"
                )


def _check_memory(plan: Plan, result: Result, cluster: Cluster) -> None:
    missing, has = result.missing_bytes, cluster.accelerator.memory_bytes
    if missing:
        raise PlanError(
            f"plan {plan.name} needs {(has + missing) / GB:.1f} GB on a device of {has / GB:.4g} GB: "
            f"{missing / GB:.1f} GB ({missing:,} bytes) are missing; use a smaller batch, more devices, "
            "or a plan that splits the layers themselves (tensor:N, owt:N, pipeline:N)"
        )


def micro_batches(plan: Plan, graph: Graph, splits: Sequence[Split], batch: int) -> list[int]:
    """Numbers of micro-batches to simulate: what the plan says, or doublings of which the fastest is taken.

    A batch norm sees the whole batch unless the user says otherwise: what is faster must not decide what is computed.
    """
    degree = {axis.name: axis.degree for axis in plan.axes}
    most = max(batch // max(split.sample for split in splits), 1)
    if plan.microbatches is not None and plan.microbatches > most:
        raise PlanError(
            f"plan option microbatches={plan.microbatches}: a batch of {batch} can be cut into at most {most} for "
            f"plan {plan.name}"
        )
    if plan.microbatches is not None or degree.get("pipeline", 1) == 1:
        return [plan.microbatches or 1]
    if has_batch_norm(graph):
        return [1]
    limit = min(most, MOST_MICRO * degree["pipeline"])
    return [1 << power for power in range(limit.bit_length())]
