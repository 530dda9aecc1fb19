"""Stragglers: workers slowed on purpose, to see what the others' waiting costs; engine and virtual cluster draw alike.

fault.slow_rank=1:3x        every step of rank 1 takes 3 times as long
fault.slow_steps=0.1:10x    one step in ten, drawn by seed, rank and step, takes 10 times as long
"""

import math
from dataclasses import dataclass

from manyhands.errors import ConfigError

OWN = 1  # so that these draws are others than those of who meets whom, of the same seed, rank and step
KEYS = {"slow_rank": "RANK:FACTORx such as 1:3x", "slow_steps": "SHARE:FACTORx such as 0.1:10x"}


@dataclass(frozen=True)
class Fault:
    """Who is slower, and how often anybody is."""

    rank: int | None = None
    rank_factor: float = 1.0
    share: float = 0.0  # of all steps
    step_factor: float = 1.0

    def factor(self, rank: int, step: int, seed: int) -> float:
        """How many times as long step `step` of a worker takes, counted by itself from 0."""
        factor = self.rank_factor if rank == self.rank else 1.0
        if not self.share:
            return factor
        import numpy as np  # which a command that draws nothing need not load

        drawn = np.random.default_rng([seed, rank, step, OWN]).random() < self.share
        return factor * self.step_factor if drawn else factor

    def check(self, workers: int) -> None:
        """Refuse a rank that a plan with so many workers does not have."""
        if self.rank is not None and self.rank >= workers:
            raise ConfigError(
                f"fault.slow_rank={self.rank}:{self.rank_factor:g}x: the plan has workers 0 to {workers - 1}; "
                "name one of them"
            )


def read(slow_rank: str | None, slow_steps: str | None) -> Fault:
    """The fault that the two keys of a config say."""
    rank, rank_factor = _pair("slow_rank", slow_rank) if slow_rank is not None else (None, 1.0)
    share, step_factor = _pair("slow_steps", slow_steps) if slow_steps is not None else (0.0, 1.0)
    if rank is not None and rank != int(rank):
        raise ConfigError(f"fault.slow_rank={slow_rank}: the rank is {rank}, a whole number is needed: 1:3x")
    if share > 1:
        raise ConfigError(f"fault.slow_steps={slow_steps}: the share is {share}, it must be from 0 to 1: 0.1:10x")
    return Fault(None if rank is None else int(rank), rank_factor, share, step_factor)


def _pair(key: str, text: str) -> tuple[float, float]:
    """Which and how much, of `WHICH:FACTORx`."""
    which, colon, factor = text.partition(":")
    try:
        first, second = float(which), float(factor.removesuffix("x"))
    except ValueError:
        first = second = math.nan
    if not colon or not factor.endswith("x") or not (math.isfinite(first) and math.isfinite(second)):
        raise ConfigError(f"fault.{key}={text}: write {KEYS[key]}")
    if first < 0 or second < 1:
        raise ConfigError(
            f"fault.{key}={text}: {which} must be at least 0, and the factor at least 1; write {KEYS[key]}"
        )
    return first, second
