"""Link: how long messages take between ranks.

    seconds(bytes) = latency + bytes / bandwidth

Bytes are those of the tensor that each rank holds: an all-reduce of 1 MB over any number of ranks counts 1 MB.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

BACKENDS = ("gloo", "shm", "mpi", "nccl")
# In place: the tensors lie in memory that all ranks share, and are reduced there.
OPERATIONS = ("all_reduce", "all_reduce_in_place", "send")

Point = tuple[int, float]  # bytes, seconds


@dataclass(frozen=True)
class Link:
    """A backend's operation over so many ranks of one host: a fitted line, and the points that were measured."""

    backend: str
    operation: str
    ranks: int
    latency_us: float
    gb_per_s: float  # 10^9 bytes a second
    points: tuple[Point, ...] = ()  # in the order of their bytes

    def seconds(self, size: int) -> float:
        """How long `size` bytes take.

        Between two measured points on the line from one to the other; for fewer bytes by the fitted line; for more at
        the rate that the link sustains, from where the points end.
        """
        line = self.latency_us * 1e-6 + size / (self.gb_per_s * 1e9)
        if not self.points:
            return line
        (least, first), (most, last) = self.points[0], self.points[-1]
        if size <= least:
            return first if size == least else min(line, first)
        if size > most:
            return last + (size - most) / (self.sustained_gb_per_s * 1e9)
        above = bisect_left(self.points, (size, 0.0))
        (low, before), (high, after) = self.points[above - 1], self.points[above]
        return before + (after - before) * (size - low) / (high - low)

    @property
    def sustained_gb_per_s(self) -> float:
        """From the second largest message to the largest: buffers and caches take the first bytes faster."""
        if len(self.points) < 2:
            return self.gb_per_s
        (less, before), (most, last) = self.points[-2:]
        return (most - less) / (last - before) / 1e9 if last > before else self.gb_per_s

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Link":
        return cls(**{**value, "points": tuple((size, seconds) for size, seconds in value.get("points", ()))})


def fit(points: Sequence[Point]) -> tuple[float, float]:
    """Latency in microseconds and bandwidth in GB/s of the line with the least relative errors.

    Least squares over ((a + b x) / t - 1) for points (x, t): plain errors would let the largest message alone
    decide, whose microseconds of latency vanish in its own noise.
    """
    one, x, xx, t, xt = (
        sum(size**power * seconds**-root for size, seconds in points)
        for power, root in ((0, 2), (1, 2), (2, 2), (0, 1), (1, 1))
    )
    determinant = one * xx - x * x
    a, b = 0.0, xt / xx  # through the origin, where latency is lost in noise or there is but one point
    if determinant > 0:
        a, b = (t * xx - x * xt) / determinant, (one * xt - x * t) / determinant
    if a < 0:
        a, b = 0.0, xt / xx
    if b <= 0:  # small messages alone, all alike
        size, seconds = points[-1]
        a, b = min(seconds for _, seconds in points), seconds / size
    return a * 1e6, 1e-9 / b
