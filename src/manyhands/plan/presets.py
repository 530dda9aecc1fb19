"""Presets: the words of a plan as a split for every layer."""

from collections.abc import Sequence

from manyhands.errors import PlanError
from manyhands.graph.graph import Graph, Layer
from manyhands.plan.axis import Axis
from manyhands.plan.sharding import Split, on
from manyhands.plan.sharding_rules import ALL, Ways, ways
from manyhands.plan.stages import Weigh, balance

SPLITS = ("data", "ddp", "tensor", "pipeline", "owt")


def flops(layer: Layer) -> float:
    return float(layer.flops)


def splits(axes: Sequence[Axis], graph: Graph, batch: int, weigh: Weigh = flops, chunks: int = 1) -> tuple[Split, ...]:
    """The split of each layer under a plan's axes; devices of a mesh count stages slowest, then data, then tensor.

    A pipeline has `chunks` stages on each device: the first ones on all devices in turn, then the second ones.
    """
    degree = {axis.name: axis.degree for axis in axes}
    if {"plain", "serial"} & set(degree):
        return tuple(on(0) for _ in graph.layers)
    words = ",".join(map(str, axes))
    if not set(SPLITS) & set(degree):
        known = ", ".join(("plain", "serial", *SPLITS))
        raise PlanError(f"plan '{words}' cannot be simulated, it does not say how layers are split: use {known}")
    sample = max(degree.get(name, 1) for name in ("data", "ddp", "owt"))
    tensor, positions = degree.get("tensor", 1), degree.get("pipeline", 1)
    stages = positions * chunks if positions > 1 else 1
    if sample > batch:
        raise PlanError(f"plan '{words}' cuts {batch} samples into {sample} parts: use a batch of at least {sample}")
    if stages > len(graph.layers):
        most = len(graph.layers)
        each = f" ({chunks} on each device)" if chunks > 1 else ""
        told = f"plan '{words}' has {stages} stages{each}, the model {most} layers"
        raise PlanError(f"{told}: use at most pipeline:{most // chunks}")
    if "owt" in degree:
        return _owt(graph, sample, batch)
    stage = balance([weigh(layer) for layer in graph.layers], stages)
    cut = _tensor(graph, tensor, batch)
    return tuple(
        on(stage[number] % positions * sample * tensor, sample=sample, **{name: tensor for name in (by,) if tensor > 1})
        for number, by in enumerate(cut)
    )


def _owt(graph: Graph, degree: int, batch: int) -> tuple[Split, ...]:
    """One weird trick: dense layers by parameter, and what follows them; all before by sample."""
    chosen: list[str] = []
    for layer in graph.layers:
        most = ways(layer, batch)
        after_dense = _gets_cut(graph, layer, chosen) and most.same
        by_parameter = (layer.kind == "dense" or after_dense) and most.parameter >= degree
        chosen.append("parameter" if by_parameter else "sample")
    return tuple(on(0, **{by: degree}) for by in chosen)


def _tensor(graph: Graph, degree: int, batch: int) -> list[str]:
    """How each layer is cut by features: by parameter where it gets all of its input, then by reduction where its
    input is cut already, so that a pair of layers costs one exchange; what cannot be cut is done by all."""
    chosen: list[str] = []
    for layer in graph.layers:
        chosen.append(_feature_cut(layer, ways(layer, batch), degree, _gets_cut(graph, layer, chosen)))
    return chosen


def _gets_cut(graph: Graph, layer: Layer, chosen: Sequence[str]) -> bool:
    """Whether all that a layer takes is cut by features already; masks and scales, smaller than the rest, have none."""
    largest = max((graph.layers[source].results for source in layer.after), default=0)
    sources = [source for source in layer.after if graph.layers[source].results == largest]
    return bool(sources) and all(chosen[source] == "parameter" for source in sources)


def _feature_cut(layer: Layer, most: Ways, degree: int, is_cut: bool) -> str:
    if layer.kind in ALL and is_cut and most.reduction >= degree:
        return "reduction"
    if most.parameter >= degree and (layer.kind in ALL or is_cut):
        return "parameter"
    return "copies"
