"""LR scaling: the rate for a batch of another size than the one that a rate was chosen for.

none     lr
linear   lr · B / base        Goyal et al. 2017: as many samples move the weights as far; for SGD, with a warm-up
sqrt     lr · √(B / base)     Krizhevsky 2014: the noise of a step stays the same; also for Adam and LAMB
"""

import math
from dataclasses import replace

from manyhands.optim.options import OptimOptions

LARS_LR = 1.0  # its rates are multiplied by a trust coefficient of 0.001, and are unlike those of Adam


def base_rate(options: OptimOptions, usual: float, batch: int) -> float:
    """The rate that a schedule multiplies; `usual` is the model's own with Adam, where the options name none."""
    rate = options.lr or (LARS_LR if options.name == "lars" else usual)
    times = batch / options.base_batch
    match options.scaling:
        case "linear":
            return rate * times
        case "sqrt":
            return rate * math.sqrt(times)
        case _:
            return rate


LINEAR = ("sgd", "momentum", "nesterov")  # of the others the step is normalized, and grows with the square root


def scaling(options: OptimOptions) -> str:
    """What is asked for, or the rule."""
    if options.scaling != "none":
        return options.scaling
    return "linear" if options.name in LINEAR else "sqrt"


def scaled(rate: float, options: OptimOptions, size: int) -> float:
    """The rate for a batch of `size` where `rate` is that for the options' base."""
    return base_rate(replace(options, lr=rate, scaling=scaling(options)), rate, size)
