"""Here: this machine as the simulator sees it, with layers and links that were measured."""

from dataclasses import dataclass, replace

from manyhands.data.load import load
from manyhands.errors import InputError, PlanError
from manyhands.graph.fuse import fuse
from manyhands.graph.graph import Graph
from manyhands.machine.detect import detect
from manyhands.machine.machine import Machine
from manyhands.plan.axis import Axis
from manyhands.plan.plan import Plan
from manyhands.progress import say
from manyhands.runs import find
from manyhands.runs.config import Config, with_values
from manyhands.runs.early import settle_early
from manyhands.runs.layers import graph_of
from manyhands.runs.profile import profiles
from manyhands.runs.simulated import Prediction, Simulator

PLANS = ("plain", "serial", "data", "ddp")


@dataclass(frozen=True)
class Here:
    """Predicts plans that the engine runs, from what their layers cost on these cores."""

    config: Config
    graph: Graph
    computer: Machine
    kind: str  # of the data
    machine: str = "here"

    @classmethod
    def of(cls, config: Config) -> "Here":
        return cls(config, fuse(graph_of(config)), detect(), load(config.data.name, config.data).schema.kind)

    def predict(self, plan: Plan, batch: int, devices: int | None = None) -> Prediction:
        """The plan, what it leaves open filled with the fastest that is predicted."""
        names = [axis.name for axis in plan.axes]
        if len(names) != 1 or names[0] not in PLANS or plan.layers or plan.device == "cuda":
            raise PlanError(
                f"plan {plan.name} cannot be simulated on this machine yet: {', '.join(PLANS)} on the CPU can; "
                "name a described machine for others, such as --machine cpu16"
            )
        if devices not in (None, plan.world):
            raise InputError(f"--devices {devices}: plan {plan.name} has {plan.world} on this machine; leave it out")
        config = with_values(self.config, {"train.batch_size": batch})
        plans = [settle_early(each, config, self.computer) for each in self._filled(plan)]
        say(f"timing the layers in {plan.world} process{'es' if plan.world > 1 else ''}")
        taken = profiles(config, plans, [-(-batch // plan.world)], self.computer)
        links = find.known_links(plans[0].backend or "shm", plan.world, self.computer) if plan.world > 1 else None
        made = [
            find.predicted(self.graph, each, profile, links, config, self.computer)
            for each, profile in zip(plans, taken, strict=True)
        ]
        return min(made, key=lambda each: each.result.step_ns)

    def _filled(self, plan: Plan) -> list[Plan]:
        if plan.is_baseline:
            return [plan.with_defaults(**find.USUAL)]
        made = find.processes(replace(plan, axes=(Axis("auto"),)), plan.world, self.kind, self.computer)
        return [replace(each, threads=plan.threads or each.threads) for each in made]


def simulator_of(config: Config, machine: str, one_device_ms: float | None = None) -> Simulator | Here:
    """This machine, measured; or one that is described."""
    if machine != "here":
        return Simulator.of(config, machine, one_device_ms)
    if one_device_ms is not None:
        raise InputError(f"--one-device-ms {one_device_ms}: this machine is measured; leave it out")
    return Here.of(config)
