"""Partition: which splits a layer supports."""

from dataclasses import dataclass

from manyhands.graph.graph import Layer
from manyhands.plan.split import Split

# What a layer needs of its input to make some of its output features.
ALL = ("conv", "dense", "embedding")  # every input feature
SAME = ("attention", "norm", "pool", "pointwise")  # those features alone (an attention's are its heads)
REDUCED = ("conv", "dense")  # may take some input features and add up


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
    chief = next((each for each in members if each.kind == layer.kind), layer)
    cut = all(_by_feature(each) for each in members)
    reduced = cut and chief.kind in REDUCED and not _grouped(chief) and members[0] is chief
    return Ways(
        sample=batch,
        parameter=_features(chief) if cut else 1,
        reduction=chief.weights[0][1] if reduced else 1,
        same=chief.kind not in ALL,
    )


def _by_feature(layer: Layer) -> bool:
    """Whether output features can be made apart; a layer norm, say, needs all of a sample's."""
    if layer.kind == "norm":
        return layer.operation.startswith(("BatchNorm", "batch_norm"))
    return layer.kind in (*ALL, *SAME) and not _grouped(layer)


def _grouped(layer: Layer) -> bool:
    """A convolution whose channels fall into groups takes only its group's."""
    return layer.kind == "conv" and len(layer.inputs[0]) > 1 and layer.weights[0][1] != layer.inputs[0][1]


def _features(layer: Layer) -> int:
    if layer.kind == "conv":
        return layer.weights[0][0]
    return layer.output[-1] if layer.kind != "pool" else layer.output[1]


def fits(layer: Layer, split: Split, batch: int) -> str | None:
    """Why a layer cannot be split so, or None."""
    most = ways(layer, batch)
    for name in ("sample", "parameter", "reduction"):
        degree, limit = getattr(split, name), getattr(most, name)
        if degree > limit:
            return f"{name}={degree}: layer {layer.name} ({layer.operation}) can be cut into at most {limit}"
    return None
