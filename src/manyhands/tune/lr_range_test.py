"""LR range test: the learning rate that a range test suggests (Smith 2017).

loss │────╮          ╱          steps whose rate grows by the same factor each
     │     ╲        ╱
     │      ╲      ╱            steepest: where the smoothed loss falls fastest
     │       ╰────╯             blows up: where it is several times its least
     └─────────────────▶ log rate
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from manyhands.config import Config
from manyhands.errors import RunError
from manyhands.plan.plan import Plan
from manyhands.progress import bar
from manyhands.tune.child_process import ask, settled

LOW, HIGH, STEPS = 1e-6, 10.0, 140
DECAY = 0.9  # of the smoothing
BLOWN = 4.0  # times the least smoothed loss
LEARNS = 0.99  # of the first smoothed loss: what does not fall below it has learned nothing
SAFE = 10.0  # times below the rate that blows up


@dataclass(frozen=True)
class Suggestion:
    """What the losses say; None where it was not seen."""

    best: float | None
    steepest: float | None
    blows_up: float | None


def tune(config: Config, plan: Plan) -> dict[str, Any]:
    """The range test of a model on its data."""
    with bar("trying rates", STEPS, "steps") as shown:
        found = ask("ramp", config, settled(config, plan), shown.advance, rates=ladder()).known()
    rates, losses = found["lr"], found["loss"]
    told = suggest(rates, losses, found["diverged"])
    if told.best is None:
        raise RunError(f"model {config.model.name} learns at no rate from {LOW:g} to {HIGH:g}: look at model and data")
    return {
        "model": config.model.name,
        "data": config.data.name,
        "plan": found["plan"],
        "batch_size": config.train.batch_size,
        "best": {"lr": told.best},
        "steepest": told.steepest,
        "blows_up": told.blows_up,
        "table": [
            {"lr": rate, "loss": loss, "smoothed": level}
            for rate, loss, level in zip(rates, losses, smoothed(losses), strict=False)
        ],
    }


def ladder() -> list[float]:
    """The rates of the test, each the same factor above the last."""
    return [LOW * (HIGH / LOW) ** (number / (STEPS - 1)) for number in range(STEPS)]


def smoothed(losses: Sequence[float]) -> list[float]:
    """An exponential mean of each loss and those before it, without the pull towards nothing at its beginning."""
    levels, level = [], 0.0
    for number, loss in enumerate(losses, start=1):
        level = DECAY * level + (1 - DECAY) * loss
        levels.append(level / (1 - DECAY**number))
    return levels


def is_blown(levels: Sequence[float]) -> bool:
    """Whether the last smoothed loss is so far above the least that nothing good comes after."""
    return levels[-1] > BLOWN * min(levels)


def suggest(rates: Sequence[float], losses: Sequence[float], diverged: bool = False) -> Suggestion:
    """From losses up to the first, if any, that `diverged`: `rates` then has one more.

    The best is the steepest, but no more than a tenth of what blows up.
    """
    levels = smoothed(losses)
    least = min(range(len(levels)), key=levels.__getitem__, default=0)
    blown = next((at for at in range(least, len(levels)) if levels[at] > BLOWN * levels[least]), None)
    if blown is None and diverged:
        blown = len(losses)
    slopes = {at: (levels[at + 1] - levels[at - 1]) / math.log(rates[at + 1] / rates[at - 1]) for at in range(1, least)}
    falls = [at for at in slopes if slopes[at] < 0 and levels[least] < LEARNS * levels[0]]
    steepest = rates[min(falls, key=slopes.__getitem__)] if falls else None
    blows_up = rates[blown] if blown is not None else None
    known = [each for each in (steepest, blows_up and blows_up / SAFE) if each is not None]
    return Suggestion(min(known, default=None), steepest, blows_up)
