"""Task order: the order in which the beats of a step are played."""

from collections.abc import Sequence

from manyhands.graph.graph import Graph
from manyhands.plan.pipeline_schedule import Action, begins
from manyhands.plan.stages import Pipeline
from manyhands.simulate.step.arrays import BACKWARD, FORWARD, WEIGHTS
from manyhands.simulate.step.build import Beat
from manyhands.simulate.step.cost_tables import waits


def gpipe(graph: Graph, micro: int) -> list[Beat]:
    """Every micro-batch forward, then every one backward; a layer without parameters before it has no backward."""
    layers = range(len(graph.layers))
    forward = [(FORWARD, part, layer) for part in range(micro) for layer in layers]
    backward = [(BACKWARD, part, layer) for part in range(micro) for layer in reversed(layers) if graph.learns[layer]]
    return forward + backward


def program(graph: Graph, micro: int, pipeline: Pipeline | None = None) -> list[Beat]:
    """Each device's beats in the order of its schedule; those of several devices as equal stages would begin."""
    if pipeline is None or pipeline.schedule == "gpipe":
        return gpipe(graph, micro)
    begun = begins(pipeline.schedule, pipeline.positions, micro)
    stages: list[list[int]] = [[] for _ in range(1 + max(pipeline.stage))]
    for layer, stage in enumerate(pipeline.stage):
        stages[stage].append(layer)
    return [
        beat
        for action in sorted(begun, key=lambda each: _turn(each, begun[each]))
        for beat in _beats(graph, action, stages[action.stage])
    ]


def _turn(action: Action, begun: int) -> tuple[int, int]:
    """Of those that begin together the one first that takes what another made before: its sender goes on then."""
    return begun, -action.stage if action.kind == "forward" else action.stage


def _beats(graph: Graph, action: Action, layers: Sequence[int]) -> list[Beat]:
    """A stage's layers one after the other, backward those that have a backward pass."""
    if action.kind == "forward":
        return [(FORWARD, action.microbatch, layer) for layer in layers]
    back = [layer for layer in reversed(layers) if graph.learns[layer]]
    if action.kind == "backward":
        return [(BACKWARD, action.microbatch, layer) for layer in back]
    return [(WEIGHTS, action.microbatch, layer) for layer in back if waits(graph.layers[layer])]
