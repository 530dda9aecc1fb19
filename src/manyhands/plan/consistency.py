"""Consistency: who waits for whom when workers have weights of their own age; rules of engine and virtual cluster.

sync     every step: all parts of a batch, one update; nobody computes on weights that are not the newest
stale    a worker that begins step c has the updates of all steps before c - s; an update still has all parts
async    every part of a batch is an update of its own, by whoever comes
local    every worker updates weights of its own; all are averaged every H steps
gossip   the same, but after each step two of them meet, and both go on with their mean
"""

EVERY, STALENESS = 8, 4  # where a plan does not say


def ready(clock: int, complete: int, staleness: int) -> bool:
    """Whether a worker may begin step `clock` when so many steps are complete and applied."""
    return complete >= clock - staleness


def late_factor(staleness: int) -> float:
    """What a gradient is multiplied by that so many updates have overtaken: the more, the less (`adapt=on`)."""
    return 1.0 / max(1, staleness)


def averages(step: int, every: int, after: int) -> bool:
    """Whether weights are averaged at the end of step `step`, counted from 0."""
    return step < after or (step - after) % every == every - 1


def partners(topology: str, rank: int, step: int, world: int, seed: int) -> list[int]:
    """Whom a worker meets after a step: the first of these who is alive.

    ring: the neighbours, in turn. exponential: those 1, 2, 4, … away, in turn. pairs: anybody.
    """
    others = [(rank + away) % world for away in range(1, world)]
    if not others:
        return []
    if topology == "pairs":
        import numpy as np  # which a command that draws nothing need not load

        drawn = np.random.default_rng([seed, rank, step]).permutation(len(others))
        return [others[number] for number in drawn]
    if topology == "ring":
        wanted = others[0] if step % 2 == 0 else others[-1]
    else:
        distances = [1 << power for power in range((world - 1).bit_length())]
        wanted = (rank + distances[step % len(distances)]) % world
    first = others.index(wanted)
    return others[first:] + others[:first]


def elastic_rate(world: int) -> float:
    """How far a worker and the centre move towards each other: stable while all together move it by less than 1."""
    return 0.9 / world
