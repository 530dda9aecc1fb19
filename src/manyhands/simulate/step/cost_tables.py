"""Cost tables: what every layer costs in every cut."""

from collections.abc import Iterator, Sequence
from math import prod

import numpy as np

from manyhands.graph.graph import Graph, Layer
from manyhands.plan.stages import Pipeline
from manyhands.simulate.cost.cost_model import Costs

WAIT = ("conv", "dense", "embedding")  # kinds of layers whose weight gradients can be made later


def waits(layer: Layer) -> bool:
    """Whether a layer has weight gradients that can be made later."""
    return any(each.weights and each.kind in WAIT for each in layer.members or (layer,))


class Tables:
    """Nanoseconds and bytes of one part: of layer l, k-th degree by sample, p-th by parameter and r-th by reduction; of
    updates and sums of gradients, q-th by both together."""

    def __init__(
        self, graph: Graph, costs: Costs, cuts: Sequence[int], samples: float, micro: int, pipeline: Pipeline | None
    ) -> None:
        self.graph, self.costs, self.cuts = graph, costs, cuts
        layers, shape = len(graph.layers), (len(graph.layers), len(cuts), len(cuts))
        self.forward, self.backward, self.apart, self.memory = (
            np.zeros((*shape, len(cuts)), dtype=np.int64) for _ in range(4)
        )
        self.sync = np.full(shape, -1, dtype=np.int64)
        self.update = np.zeros((layers, len(cuts)), dtype=np.int64)
        kept = pipeline.kept(micro) if pipeline else (micro,) * layers
        self.again = pipeline is not None and pipeline.recompute
        self.zerobubble = pipeline is not None and pipeline.schedule == "zerobubble"
        brought = _brought(graph, pipeline.stage) if pipeline else ()
        for number, layer in enumerate(graph.layers):
            for k, sample in enumerate(cuts):
                part = samples / sample
                self._passes(number, k, part)
                held = brought[number] * part / graph.batch * costs.activation_bytes() if self.again else 0.0
                for p, parameter, r, reduction in self._features():
                    needed = costs.memory(layer, part, parameter, reduction, 1 if self.again else kept[number])
                    self.memory[number, k, p, r] = needed + round(kept[number] * held)
                for q, pieces in enumerate(cuts):
                    synced = costs.sync(layer, sample, pieces)
                    self.sync[number, k, q] = -1 if synced is None else synced
            for q, pieces in enumerate(cuts):
                self.update[number, q] = costs.update(layer.parameters / pieces) if layer.parameters else 0

    def _passes(self, number: int, k: int, samples: float) -> None:
        """Note what the passes of one part take, however its features are cut."""
        layer = self.graph.layers[number]
        for p, parameter, r, reduction in self._features():
            at = (number, k, p, r)
            forward, backward = self.costs.layer(layer, samples, parameter, reduction)
            # At least one: see collectives.
            self.forward[at], self.backward[at] = max(forward, 1), max(backward, 1)
            if self.zerobubble and waits(layer):
                self.backward[at] = max(backward, 2)
                later = self._later(number, samples, parameter, reduction)
                self.apart[at] = min(max(later, 1), self.backward[at] - 1)
            if self.again:
                self.backward[at] += self.forward[at]

    def _features(self) -> Iterator[tuple[int, int, int, int]]:
        """Every way to cut features: number and degree by parameter, and by reduction."""
        for p, parameter in enumerate(self.cuts):
            for r, reduction in enumerate(self.cuts):
                if parameter * reduction in self.cuts:
                    yield p, parameter, r, reduction

    def _later(self, number: int, samples: float, parameter: int, reduction: int) -> int:
        """The weights' share of a layer's backward pass: as much as the inputs' where something learns before it."""
        layer, later = self.graph.layers[number], 0
        first = not any(self.graph.learns[source] for source in layer.after)
        for each in layer.members or (layer,):
            if each.weights and each.kind in WAIT:
                _, backward = self.costs.layer(each, samples, parameter, reduction)
                later += backward if first or each.kind == "embedding" else backward // 2
            first, reduction = first and not each.weights, 1
        return later


def _brought(graph: Graph, stage: Sequence[int]) -> list[int]:
    """Numbers of the whole batch that a layer is the first of its stage to take from elsewhere."""
    seen: set[tuple[int, int]] = set()
    found = []
    for number, layer in enumerate(graph.layers):
        others = {(source, stage[number]) for source in layer.after if stage[source] != stage[number]} - seen
        inputs = sum(map(prod, layer.inputs)) if not layer.after else 0
        found.append(inputs + sum(graph.layers[source].results for source, _ in others))
        seen |= others
    return found
