"""Proposals: the changes that a Markov chain over plans proposes, drawn beforehand.

A change gives one layer, or a run of neighbouring layers up to all, another split. The chain goes there if the step
gets faster, or else with a chance that falls with the loss and with the time that the walk has left:

    chance = exp(-loss / temperature)        loss: share of the step's time

which is to go there wherever the loss is at most -temperature x log(u), for a random u in (0, 1]. So the most that a
change may lose can be drawn before anything is simulated, and a simulation can end as soon as it is seen to lose more.
"""

import numpy as np

from manyhands.simulate.search.space import Space
from manyhands.simulate.step.arrays import LAYER, PLAN, SHIFT, WAY, Floats, Ints

HOT, COLD = 0.03, 0.0003  # losses that are accepted in one of three cases, at the start and at the end
SINGLE = 0.75  # of the changes, those of one layer
# From where a change takes its splits: any that the layer can have, the layer beside it, what the plans that are known
# have for each (the best so far among them), or what the layers have with a factor moved to samples or away.
SOURCES = {WAY: 0.4, LAYER: 0.15, PLAN: 0.2, SHIFT: 0.25}
WHOLE = 0.7  # of any splits, those over all devices
ELSEWHERE = 0.3  # of the others, those that need not begin at the first device


def draw(
    rng: np.random.Generator, space: Space, plans: int, begin: int, end: int, proposals: int
) -> tuple[Ints, Floats]:
    """Changes `begin` to `end` of a walk of so many proposals, and the losses up to which they are accepted."""
    count, layers = end - begin, len(space.starts) - 1
    low = rng.integers(layers, size=count)
    length = np.where(rng.random(count) < SINGLE, 1, rng.integers(1, layers + 1, size=count))
    high = np.minimum(low + length, layers)
    source = rng.choice(list(SOURCES), p=list(SOURCES.values()), size=count)
    choices = np.where(rng.random(count) < WHOLE, space.whole[low], np.diff(space.starts)[low])
    way = space.starts[low] + (rng.random(count) * choices).astype(np.int64)
    parts = space.ways[way].prod(axis=1)
    blocks = np.where(rng.random(count) < ELSEWHERE, space.devices // parts, 1)
    first = parts * (rng.random(count) * blocks).astype(np.int64)
    beside = np.where((rng.random(count) < 0.5) & (high < layers), high, np.maximum(low - 1, 0))
    factor = rng.choice(space.factors, size=count) * rng.choice([-1, 1], size=count)
    number = np.choose(source, [way, beside, rng.integers(plans, size=count), factor])
    temperature = HOT * (COLD / HOT) ** (np.arange(begin, end) / max(proposals, 1))
    slack = -np.log1p(-rng.random(count)) * temperature
    return np.stack([low, high, source, number, first], axis=1), slack
