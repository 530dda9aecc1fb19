"""Auto batch size: the batch size of `train.batch_size=auto`, the largest that pays.

Sizes are doubled, each in a fresh process, as long as a larger one runs and is faster, an epoch has some steps left,
and the critical batch is not passed, where an earlier `tune batch-size` has found it. The rate goes with the size,
unless it is given.
"""

import time
from typing import Any

from manyhands.comm.ranks.rank_info import place
from manyhands.config import Config, located, with_values
from manyhands.errors import ConfigError
from manyhands.optim.lr_scaling import scaled, scaling
from manyhands.optim.options import OptimOptions
from manyhands.plan.plan import Plan
from manyhands.plan.spec import parse
from manyhands.progress import bar
from manyhands.tune import critical_batch
from manyhands.tune.batch_size import LEAST_STEPS
from manyhands.tune.child_process import settled
from manyhands.tune.throughput import Speeds
from manyhands.tune.throughput_knee import NEARLY, knee

FIRST = 32
FLAT = 2  # doublings in a row that gain nothing, before it stops
MOST_DOUBLINGS = 12  # that a bar counts on


def pick(config: Config, plan: Plan) -> tuple[Config, dict[str, Any]]:
    """The config with a batch size and a rate, and what run.json tells of the choice."""
    if place() is not None:
        raise ConfigError(
            "train.batch_size=auto measures in processes of its own: give a number under torchrun, mpirun and srun"
        )
    begun = time.perf_counter()
    first = max(FIRST, plan.world)
    config = with_values(located(config), {"train.batch_size": first})
    unscaled = with_values(config, {"optim.scaling": "none"})
    speeds = Speeds(unscaled, settled(config, parse("serial") if plan.axes[0].name == "auto" else plan))
    critical = critical_batch.recall(config)
    why = _grow(speeds, first, critical)
    size = knee(speeds.throughputs())
    options = config.optim
    chosen: dict[str, Any] = {"train.batch_size": size}
    given = options.lr is not None and options.scaling == "none"
    rate = speeds.rate if given else scaled(speeds.rate, options, size)
    if options.scaling == "none":  # else the training scales it itself
        chosen["optim.lr"] = rate
    told = {
        "batch_size": size,
        "lr": rate,
        "critical_batch": critical,
        "seconds": time.perf_counter() - begun,
        "why": f"batch {size}: {_fastest(speeds, size)}; {why}. {_rate(options, rate, speeds.rate, given)}",
        "table": [row.to_json() for _, row in sorted(speeds.rows.items())],
    }
    return with_values(config, chosen), told


def _grow(speeds: Speeds, first: int, critical: float | None) -> str:
    """Measure sizes from below, and say why no larger one was."""
    with bar("measuring batch sizes", MOST_DOUBLINGS, "sizes") as shown:
        speeds.told = lambda speed: shown.advance(1, f"batch {speed.size}")
        size, flat, fastest = first, 0, speeds.at(first).samples_per_s or 0.0
        while flat < FLAT:
            size *= 2
            if size > speeds.samples // LEAST_STEPS:
                return f"with {size} an epoch would have fewer than {LEAST_STEPS} steps"
            if critical is not None and size > critical:
                return f"the critical batch is {critical:.0f}"
            if not speeds.fits(size):
                return f"{size} does not run: {speeds.rows[size].failed}"
            speed = speeds.rows[size].samples_per_s or 0.0
            flat = 0 if NEARLY * speed > fastest else flat + 1
            fastest = max(fastest, speed)
    return "larger ones are hardly faster"


def _fastest(speeds: Speeds, size: int) -> str:
    return f"{speeds.rows[size].samples_per_s:,.0f} samples/s of at most {max(speeds.throughputs().values()):,.0f}"


def _rate(options: OptimOptions, rate: float, base: float, given: bool) -> str:
    if given:
        return f"The learning rate {rate:g} is as given"
    grown = "linearly" if scaling(options) == "linear" else "with the square root"
    return f"The learning rate {rate:g} is {base:g}, that for {options.base_batch}, grown {grown}"
