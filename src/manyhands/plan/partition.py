"""Partition: which splits a layer supports."""

from dataclasses import dataclass

from manyhands.graph.graph import Layer, Shape
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
    chief = next((each for each in members if each.name == layer.name), layer)
    cut = all(map(_by_feature, members))
    reduced = cut and chief.kind in REDUCED and members[0] is chief
    return Ways(
        sample=batch,
        parameter=_features(chief) if cut else 1,
        reduction=chief.inputs[0][feature_dim(chief, chief.inputs[0])] if reduced else 1,
        same=chief.kind not in ALL,
    )


def _by_feature(layer: Layer) -> bool:
    """Whether output features can be made apart; a layer norm, say, needs all of a sample's."""
    if layer.kind == "norm":
        return layer.operation.lower().startswith(("batch", "instance"))
    if layer.kind == "conv":
        return layer.groups == 1
    # How weights of other layers belong to their features is not known.
    return layer.kind in ALL or (layer.kind in SAME and not layer.weights and not layer.frozen)


def _features(layer: Layer) -> int:
    return layer.groups if layer.kind == "attention" else layer.output[feature_dim(layer, layer.output)]


def feature_dim(layer: Layer, shape: Shape) -> int:
    """Where features lie in what a layer takes or makes: after the samples in images, last in tokens and tables."""
    if layer.kind == "norm":
        images = _by_feature(layer)
    else:
        images = layer.kind in ("conv", "pool") or (layer.kind not in ALL and len(shape) > 3)
    return 1 if images else len(shape) - 1


def fits(layer: Layer, split: Split, batch: int) -> str | None:
    """Why a layer cannot be split so, or None."""
    most = ways(layer, batch)
    for name in ("sample", "parameter", "reduction"):
        degree, limit = getattr(split, name), getattr(most, name)
        if degree > limit:
            return f"{name}={degree}: layer {layer.name} ({layer.operation}) can be cut into at most {limit}"
    return None
