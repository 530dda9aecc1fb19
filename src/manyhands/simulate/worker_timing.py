"""Worker timing: what workers and servers of a cluster take for everything that they do."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from manyhands.machine.cluster import Cluster
from manyhands.plan.stragglers import Fault

OWN = 2  # so that jitter is drawn apart from what else is drawn by seed, worker and step


@dataclass(frozen=True)
class WorkerTiming:
    """Nanoseconds of each thing with nobody else on the core or the link.

    In a cluster whose devices do nothing while they move data (`overlap` false: a CPU), messages and sums are work
    for the cores as well.
    """

    workers: int
    compute: Mapping[int, int]  # forward and backward pass of a part, by its samples
    update: int = 0  # of all weights by one process
    message: int = 0  # all weights from one process to another
    held: int = 0  # of that, how long a server's end is taken
    add: int = 0  # a gradient to a sum
    publish: int = 0  # what a worker does with its gradient before the others can have it
    reduce: int = 0  # all workers add up what each has
    apply: int = 0  # what each worker then does to have the new weights
    servers: int = 0
    cores: int | None = None  # that all share; None: a device for each
    overlap: bool = True
    duplex: bool = True  # a server takes and gives at the same time
    speeds: tuple[float, ...] = ()  # of the workers, again and again where there are more
    jitter: float = 0.0  # standard deviation of a step's time over its mean
    fault: Fault = field(default_factory=Fault)
    seed: int = 0

    def work(self, worker: int, step: int, samples: int) -> int:
        """How long a worker computes, faults apart."""
        factor = 1.0 / self.speeds[worker % len(self.speeds)] if self.speeds else 1.0
        if self.jitter:
            # Log-normal, with mean 1: times are never negative, and sometimes long.
            sigma = float(np.sqrt(np.log1p(self.jitter**2)))
            factor *= np.random.default_rng([self.seed, worker, step, OWN]).lognormal(-(sigma**2) / 2, sigma)
        return round(self.compute[samples] * factor)

    def slower(self, worker: int, step: int) -> float:
        """How many times as long a step takes for a fault."""
        return self.fault.factor(worker, step, self.seed)


def between(cluster: Cluster, devices: int) -> tuple[float, float]:
    """Nanoseconds of latency, and bytes in a nanosecond, from one of so many devices to another far from it."""
    levels = [level for level in cluster.levels if level.devices < devices] or [cluster.levels[0]]
    return 1e3 * max(level.latency_us for level in levels), min(level.gb_per_s for level in levels)


def all_reduce(cluster: Cluster, devices: int, size: int) -> int:
    """Nanoseconds in which so many devices add up `size` bytes each: every one gives all but its own part away and gets
    the other sums back, over every level that they are spread over."""
    if devices == 1:
        return 0
    relays = 2 * (devices - 1).bit_length()
    longest = 0.0
    for level in cluster.levels:
        if level.devices >= devices:
            continue
        parts = 1.0  # a ring enters and leaves a group once; else each member sends to all that are outside
        if cluster.collectives == "direct":
            parts = level.devices * (devices - level.devices) / (devices - 1)
        volume = 2 * parts * size * (devices - 1) / devices * (1 if level.duplex else 2)
        longest = max(longest, volume / level.gb_per_s + relays * 1e3 * level.latency_us)
    return round(longest)
