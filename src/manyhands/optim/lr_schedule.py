"""LR schedule: what multiplies the base rate at each step.

    constant   ────────────        step       ────┐
                                                  └───┐
                                                      └───
    cosine     ─╮                  one-cycle      ╱╲
                 ╲                               ╱   ╲
                  ╰──                           ╱      ╲

Each may begin with a warm-up, a straight line up from near 0; one-cycle always does, over the first 30 % of
the steps unless `warmup` says otherwise.
"""

import math

from manyhands.optim.options import SCHEDULES, OptimOptions

NAMES = SCHEDULES
ONE_CYCLE_WARMUP = 0.3


def factor(options: OptimOptions, step: int, total: int) -> float:
    """The factor at step `step` (from 0) of `total`: in [0, 1], 1 at the peak.

    step: times `gamma` after each `step_every` of all steps. cosine: half a cosine from 1 down to near 0.
    one-cycle: a straight line up over the warm-up, then a straight line down to near 0.
    """
    total = max(total, 1)
    step = min(step, total - 1)
    warm = _warm_steps(options, total)
    if step < warm:
        return (step + 1) / (warm + 1)
    # From 0 at the end of the warm-up to just below 1 at the last step, so that no step is wasted at rate 0.
    progress = (step - warm) / (total - warm)
    match options.schedule:
        case "step":
            return options.gamma ** math.floor(step / total / options.step_every)
        case "cosine":
            return (1 + math.cos(math.pi * progress)) / 2
        case "one-cycle":
            return 1 - progress
        case _:
            return 1.0


def _warm_steps(options: OptimOptions, total: int) -> int:
    warmup = options.warmup
    if options.schedule == "one-cycle" and warmup == 0:
        warmup = ONE_CYCLE_WARMUP
    steps = round(warmup * total) if warmup < 1 else round(warmup)
    return min(steps, total)
