"""Sharding rules: which splits a layer supports."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from manyhands.graph.graph import Graph, Layer, Shape
from manyhands.plan.sharding import Split

# What a layer needs of its input to make some of its output features.
ALL = ("conv", "dense", "embedding", "recurrent")  # every input feature
SAME = ("attention", "norm", "pool", "pointwise")  # those features alone (an attention's are its heads)
REDUCED = ("conv", "dense")  # may take some input features and add up
# May take all input features, do a part of the work, and add up: rows of a table, heads with their projections.
SUMMED = ("Embedding", "MultiheadAttention")
LOCAL = "LocallyConnected2d"
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}  # of each hidden unit


@dataclass(frozen=True)
class Ways:
    """The most parts of each kind; 1 where a layer cannot be cut so."""

    sample: int
    parameter: int
    reduction: int
    same: bool  # a part by parameter takes of the input what it makes of the output


def ways(layer: Layer, batch: int) -> Ways:
    """How a layer may be cut at a batch of so many samples."""
    members = layer.members or (layer,)
    chief = next((each for each in members if each.name == layer.name), layer)
    follow = all(_by_feature(each) for each in members if each is not chief)
    return Ways(
        sample=batch,
        parameter=_features(chief) if follow and _by_feature(chief) else 1,
        reduction=_summands(chief) if follow and members[0] is chief else 1,
        same=not takes_all(chief),
    )


def takes_all(layer: Layer) -> bool:
    """Whether each output feature needs every input feature."""
    return layer.kind in ALL or _is_local(layer)


def _is_local(layer: Layer) -> bool:
    """Whether it is ours, with weights (positions, outputs, taps): another's of that name may have them otherwise."""
    channels = layer.output[1] if len(layer.output) == 4 else 0
    shapes = [shape[1:2] if len(shape) == 3 else shape[:1] for shape in layer.weights]
    return layer.operation == LOCAL and shapes == [(channels,)] * 2


def _by_feature(layer: Layer) -> bool:
    """Whether output features can be made apart; a layer norm, say, needs all of a sample's."""
    if layer.kind == "norm":
        return layer.operation.lower().startswith(("batch", "instance"))
    if layer.kind == "conv":
        return layer.groups == 1
    if layer.kind == "recurrent":
        return _hidden(layer) > 0
    if _is_local(layer):
        return True
    # How weights of other layers belong to their features is not known.
    return layer.kind in ALL or (layer.kind in SAME and not layer.weights and not layer.frozen)


def _features(layer: Layer) -> int:
    if layer.kind == "recurrent":
        return _hidden(layer)
    return layer.groups if layer.kind == "attention" else layer.output[feature_dim(layer, layer.output)]


def _summands(layer: Layer) -> int:
    if layer.kind in REDUCED:
        return layer.inputs[0][feature_dim(layer, layer.inputs[0])] if _by_feature(layer) else 1
    if layer.operation not in SUMMED or not layer.weights or len(layer.weights[0]) != 2:
        return 1
    rows, columns = layer.weights[0]
    if layer.operation == "Embedding":
        return rows
    return layer.groups if rows == 3 * columns else 1  # one weight for queries, keys and values of one size


def _hidden(layer: Layer) -> int:
    """Hidden units of a recurrent layer whose weights are known, and belong to them; 0 of another."""
    gates = GATES.get(layer.operation, 0)
    matrices = [shape for shape in layer.weights if len(shape) == 2]
    # The second is of the hidden state, unless it is projected to another size.
    return matrices[1][1] if gates and len(matrices) > 1 and matrices[1][0] == gates * matrices[1][1] else 0


def feature_dim(layer: Layer, shape: Shape) -> int:
    """Where features lie in what a layer takes or makes: after the samples in images, last in tokens and tables."""
    if layer.kind == "norm":
        images = _by_feature(layer)
    else:
        images = layer.kind in ("conv", "pool") or (layer.kind not in ALL and len(shape) > 3)
    return 1 if images else len(shape) - 1


def takes(layer: Layer, split: Split) -> Split:
    """How a layer's parts differ in what they take: of those that take all, each has a summand of its gradient."""
    if layer.operation in SUMMED:
        return replace(split, parameter=split.parameter * split.reduction, reduction=1)
    return split


def fits(layer: Layer, split: Split, batch: int) -> str | None:
    """Why a layer cannot be split so, or None."""
    most = ways(layer, batch)
    if split.cannon and layer.kind != "dense":
        return f"cannon: layer {layer.name} ({layer.operation}) is not dense; leave cannon out"
    for name in ("sample", "parameter", "reduction"):
        degree, limit = getattr(split, name), getattr(most, name)
        if degree > limit:
            return f"{name}={degree}: layer {layer.name} ({layer.operation}) can be cut into at most {limit}"
    return None


@dataclass(frozen=True)
class Grain:
    """Pieces of a layer's features, between which they are cut; 1: anywhere."""

    made: int = 1
    taken: int = 1


def grains(graph: Graph, splits: Sequence[Split]) -> list[Grain]:
    """Where layers are cut so that what one makes is what the next takes, though the parts are uneven.

    A head's query stays whole, and so does what was a channel before it was flattened.
    """
    made = [_made(graph, splits, number) for number in range(len(graph.layers))]
    return [Grain(made[number], _taken(graph, splits, number, made)) for number in range(len(graph.layers))]


def _made(graph: Graph, splits: Sequence[Split], number: int) -> int:
    layer, following = graph.layers[number], graph.before[number]
    if layer.kind == "attention":
        return layer.groups
    alike = all(splits[each].parameter == splits[number].parameter for each in following)
    kinds = {(graph.layers[each].kind, graph.layers[each].groups) for each in following}
    if layer.kind == "dense" and alike and len(kinds) == 1:
        kind, heads = kinds.pop()
        return heads if kind == "attention" else 1
    return 1


def _taken(graph: Graph, splits: Sequence[Split], number: int, made: Sequence[int]) -> int:
    sources = graph.layers[number].after
    if len(sources) != 1 or not 1 < splits[number].reduction == splits[sources[0]].parameter:
        return 1
    source = sources[0]
    return made[source] if made[source] > 1 else ways(graph.layers[source], 1).parameter
