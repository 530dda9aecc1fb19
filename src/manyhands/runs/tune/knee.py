"""Knee: the batch size after which a larger one is hardly faster."""

from collections.abc import Mapping

NEARLY = 0.95  # of the highest throughput


def knee(speeds: Mapping[int, float]) -> int:
    """The smallest batch size whose throughput is nearly the highest; `speeds` are samples a second by size."""
    enough = NEARLY * max(speeds.values())
    return min(size for size, speed in speeds.items() if speed >= enough)
