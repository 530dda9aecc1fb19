"""Coarsen: a layer that learns and the small ones that follow it, as one.

A pool or an activation is split as the layer is whose output it takes; to split it otherwise would move that output
twice for nothing. So a search is spared three quarters of the layers.
"""

from dataclasses import replace

from manyhands.graph.graph import Graph, Layer

FOLLOW = ("norm", "pool", "pointwise", "other")  # kinds that go with the layer before them


def coarsen(graph: Graph) -> Graph:
    """The graph with fewer layers; a layer of several has the name of the one that decides its kind."""
    home: dict[int, int] = {}  # the group of a layer
    groups: list[list[int]] = []
    for number, layer in enumerate(graph.layers):
        group = _group(graph, layer, home, groups)
        if group is None:
            group = len(groups)
            groups.append([])
        groups[group].append(number)
        home[number] = group
    return replace(graph, layers=tuple(_joined(graph, group, home) for group in groups))


def _group(graph: Graph, layer: Layer, home: dict[int, int], groups: list[list[int]]) -> int | None:
    """The group that a layer joins: its only source's, if nobody else takes that output and one follows the other."""
    if len(layer.after) != 1 or len(graph.before[layer.after[0]]) != 1:
        return None
    group = home[layer.after[0]]
    so_far = [graph.layers[number] for number in groups[group]]
    prepares = not so_far[0].after and all(each.kind in FOLLOW and not each.parameters for each in so_far)
    return group if _follows(layer) or prepares else None


def _follows(layer: Layer) -> bool:
    """What learns and is not known is a layer that counts, and may be far from small."""
    return layer.kind in FOLLOW and not (layer.kind == "other" and layer.parameters)


def _joined(graph: Graph, numbers: list[int], home: dict[int, int]) -> Layer:
    layers = [graph.layers[number] for number in numbers]
    first, last = layers[0], layers[-1]
    chief = max(layers, key=lambda each: (each.parameters + each.frozen > 0, each.kind not in FOLLOW, each.flops))
    if len(layers) == 1:
        return replace(first, after=tuple(home[source] for source in first.after))
    return Layer(
        name=chief.name,
        kind=chief.kind,
        operation=" + ".join(layer.operation for layer in layers),
        inputs=first.inputs,
        output=last.output,
        weights=tuple(shape for layer in layers for shape in layer.weights),
        flops=sum(layer.flops for layer in layers),
        after=tuple(home[source] for source in first.after),
        frozen=sum(layer.frozen for layer in layers),
        groups=chief.groups,
        members=tuple(layers),
    )
