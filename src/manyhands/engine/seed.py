"""Seed: where a training's random numbers come from, by what they are for and not by what was drawn before."""

import numpy as np


def seed_of(seed: int, *at: int) -> int:
    """A seed for one purpose, told by whole numbers: a step, say, and a part of its batch."""
    low, high = np.random.SeedSequence(seed, spawn_key=at).generate_state(2)
    return int(low) << 31 ^ int(high)


RANK_SEEDS = 1_000_003  # between the seeds of two ranks
