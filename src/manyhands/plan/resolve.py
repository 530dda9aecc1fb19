"""Resolve: the split of every layer under a plan, by its axes and by what it says of single layers."""

from manyhands.errors import PlanError
from manyhands.graph.graph import Graph, Layer
from manyhands.plan.layer_rules import some_names
from manyhands.plan.pipeline_schedule import stages_per_device
from manyhands.plan.plan import Plan
from manyhands.plan.presets import flops, splits
from manyhands.plan.sharding import Split
from manyhands.plan.sharding_rules import fits
from manyhands.plan.stages import Weigh, pipeline_of


def splits_of(plan: Plan, graph: Graph, batch: int, devices: int, weigh: Weigh = flops) -> tuple[Split, ...]:
    """A split for each layer; one that a layer, so many devices or the schedule do not support is refused."""
    by, chunks = _alike if plan.balance == "equal" else weigh, stages_per_device(plan.schedule or "gpipe")
    chosen = list(splits(plan.axes, graph, batch, by, chunks))
    for named in plan.layers:
        numbers = [number for number, layer in enumerate(graph.layers) if named.matches(layer)]
        if not numbers:
            raise PlanError(
                f"plan {plan.name}: layers '{named.name}' match nothing; "
                f"the model's layers are {some_names(graph.layers)}"
            )
        for number in numbers:
            chosen[number] = named.split
    for layer, split in zip(graph.layers, chosen, strict=True):
        _check(plan, layer, split, batch, devices)
    pipeline_of(plan, chosen)
    return tuple(chosen)


def _alike(layer: Layer) -> float:
    return 1.0


def _check(plan: Plan, layer: Layer, split: Split, batch: int, devices: int) -> None:
    if reason := fits(layer, split, batch):
        raise PlanError(f"plan {plan.name}: {reason}")
    if max(split.devices) >= devices:
        raise PlanError(
            f"plan {plan.name}: layer {layer.name} is on device {max(split.devices)}, there are {devices}, from 0 to "
            f"{devices - 1}: take more devices, or name others"
        )


def devices_of(plan: Plan) -> int:
    """How many devices a plan needs: its ranks, and those that it names."""
    return max([plan.world, *(1 + max(named.split.devices) for named in plan.layers)])
