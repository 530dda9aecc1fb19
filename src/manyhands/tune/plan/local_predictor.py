"""Local predictor: this machine as the simulator sees it, with layers and links that were measured."""

from dataclasses import dataclass, replace

from manyhands.config import Config, with_values
from manyhands.data.load import load
from manyhands.errors import InputError, PlanError
from manyhands.graph.coarsen import coarsen
from manyhands.graph.graph import Graph
from manyhands.machine.detect import detect
from manyhands.machine.machine import Machine
from manyhands.measure.layer_profiler import profiles
from manyhands.measure.link_timing import known_links, known_messages
from manyhands.plan.axis import Axis
from manyhands.plan.plan import Plan
from manyhands.plan.resolve import splits_of
from manyhands.progress import say
from manyhands.simulate.cost.layer_profile import Profile
from manyhands.simulate.cost.links import Links
from manyhands.simulate.from_profile import predicted, predicted_cut
from manyhands.simulate.model_graph import graph_of
from manyhands.simulate.simulator import Prediction, Simulator, micro_batches
from manyhands.train.plan_constraints import resolve
from manyhands.tune.plan import candidates

PLANS = ("plain", "serial", "data", "ddp", "tensor", "owt", "pipeline")


@dataclass(frozen=True)
class LocalPredictor:
    """Predicts plans that the engine runs, from what their layers cost on these cores."""

    config: Config
    graph: Graph
    computer: Machine
    kind: str  # of the data
    machine: str = "here"

    @classmethod
    def of(cls, config: Config) -> "LocalPredictor":
        return cls(config, coarsen(graph_of(config)), detect(), load(config.data.name, config.data).schema.kind)

    def predict(self, plan: Plan, batch: int, devices: int | None = None) -> Prediction:
        """The plan, what it leaves open filled with the fastest that is predicted."""
        if not {axis.name for axis in plan.axes} <= set(PLANS) or plan.device == "cuda":
            raise PlanError(
                f"plan {plan.name} cannot be simulated on this machine yet: {', '.join(PLANS)} on the CPU can; "
                "name a described machine for others, such as --machine cpu16"
            )
        if devices not in (None, plan.world):
            raise InputError(f"--devices {devices}: plan {plan.name} has {plan.world} on this machine; leave it out")
        config = with_values(self.config, {"train.batch_size": batch})
        plans = [resolve(each, config, self.computer) for each in self._filled(plan)]
        say(f"timing the layers in {plan.world} process{'es' if plan.world > 1 else ''}")
        taken = profiles(config, plans, self._sizes(plan, batch), self.computer)
        links = known_links(plans[0].backend or "shm", plan.world, self.computer) if plan.world > 1 else None
        made = [self._predicted(each, profile, links, config) for each, profile in zip(plans, taken, strict=True)]
        return min(made, key=lambda each: each.result.step_ns)

    def _predicted(self, plan: Plan, profile: Profile, links: Links | None, config: Config) -> Prediction:
        if plan.is_model_parallel and links is not None:
            both = links.small, known_messages(plan.backend or "shm", self.computer)
            return predicted_cut(self.graph, plan, profile, both, config, self.computer)
        return predicted(self.graph, plan, profile, links, config, self.computer)

    def _sizes(self, plan: Plan, batch: int) -> list[int]:
        """Samples at which layers are timed: the fewest and the most that a part of one has."""
        if not plan.is_model_parallel:
            return [-(-batch // plan.world)]
        chosen = splits_of(plan, self.graph, batch, plan.world)
        degrees = {split.sample for split in chosen}
        numbers = micro_batches(plan, self.graph, chosen, batch)
        return sorted({-(-batch // (max(numbers) * max(degrees))), -(-batch // (min(numbers) * min(degrees)))})

    def _filled(self, plan: Plan) -> list[Plan]:
        if plan.is_baseline:
            return [plan.with_defaults(**candidates.USUAL)]
        auto, axes = replace(plan, axes=(Axis("auto"),), layers=()), plan.axes if plan.is_model_parallel else None
        made = candidates.processes(auto, plan.world, self.kind, self.computer, axes)
        return [replace(each, layers=plan.layers, threads=plan.threads or each.threads) for each in made]


def simulator_of(config: Config, machine: str, one_device_ms: float | None = None) -> Simulator | LocalPredictor:
    """This machine, measured; or one that is described."""
    if machine != "here":
        return Simulator.of(config, machine, one_device_ms)
    if one_device_ms is not None:
        raise InputError(f"--one-device-ms {one_device_ms}: this machine is measured; leave it out")
    return LocalPredictor.of(config)
