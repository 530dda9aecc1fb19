"""Build: which sharding each module of a model gets, and which models cannot be sharded."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from torch import nn

from manyhands.errors import ModelError
from manyhands.graph.graph import Graph, Layer
from manyhands.plan.sharding import Split
from manyhands.plan.sharding_rules import Grain, grains, takes_all


class _Chosen(NamedTuple):
    layer: Layer
    split: Split
    grain: Grain
    follows: bool  # something before it learns
    stage: int
    before: bool  # any layer by parameter


def chosen_splits(graph: Graph, splits: Sequence[Split], stages: Sequence[int]) -> dict[str, _Chosen]:
    """Each layer by its module's name, and how it is cut."""
    found: dict[str, _Chosen] = {}
    before: list[bool] = []
    for layer, split, grain, stage in zip(graph.layers, splits, grains(graph, splits), stages, strict=True):
        follows = any(graph.learns[source] for source in layer.after)
        before.append(split.parameter * split.reduction == 1 and all(before[source] for source in layer.after))
        ahead = takes_all(layer)  # of what all parts take whole: what prepares it each does whole
        for member in layer.members or (layer,):
            ahead = ahead and member.name != layer.name
            name = member.name.partition("@")[0]
            follows = follows or (name in found and found[name].follows)
            own = _by_sample(split) if ahead else split
            found[name] = _Chosen(member, own, grain, follows, stage, before[-1])
            follows |= member.parameters > 0
    return found


def _by_sample(split: Split) -> Split:
    """The same samples on the same ranks, with all features."""
    return Split(split.sample, copies=split.parts // split.sample, devices=split.devices)


def check_tied(model: nn.Module) -> None:
    """Refuse a weight that two layers share: each would learn a part of its own."""
    users = Counter(id(each) for module in model.modules() for each in module.parameters(recurse=False))
    tied = next((name for name, each in model.named_parameters() if users[id(each)] > 1), None)
    if tied is not None:
        raise ModelError(f"parameter {tied} is shared by several layers: such a model cannot be cut; use data:N")
