"""Rule: the scaling of the rate with the batch that goes with an optimizer, where none is asked for."""

from dataclasses import replace

from manyhands.optim.options import OptimOptions
from manyhands.optim.scaling import base_rate

LINEAR = ("sgd", "momentum", "nesterov")  # of the others the step is normalized, and grows with the square root


def scaling(options: OptimOptions) -> str:
    """What is asked for, or the rule."""
    if options.scaling != "none":
        return options.scaling
    return "linear" if options.name in LINEAR else "sqrt"


def scaled(rate: float, options: OptimOptions, size: int) -> float:
    """The rate for a batch of `size` where `rate` is that for the options' base."""
    return base_rate(replace(options, lr=rate, scaling=scaling(options)), rate, size)
