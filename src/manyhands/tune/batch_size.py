"""Batch size: the one with which a model reaches a target accuracy soonest on this machine, found by measuring.

speeds       steps of each size in a fresh process, doubled until memory or data end: the knee, the memory limit
reference    one training at the smallest size: the target, where none is given, and the noise in its gradients
pursuits     trainings to the target at each size, as many for each, with rates that Optuna chooses: steps and time
law          fitted to the steps: how far larger batches save any
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from itertools import takewhile
from typing import Any

from manyhands.config import Config, located, with_values
from manyhands.errors import ConfigError, MissingPackage, RunError
from manyhands.optim.lr_scaling import scaled
from manyhands.plan.plan import Plan
from manyhands.progress import bar, say
from manyhands.tune import critical_batch as kept
from manyhands.tune.child_process import ask, settled
from manyhands.tune.critical_batch import critical_batch
from manyhands.tune.steps_vs_batch import Law, fit, regime
from manyhands.tune.throughput import Speed, Speeds
from manyhands.tune.throughput_knee import Limit, find_limit, knee

FIRST = 64
LEAST_STEPS = 8  # of an epoch: with larger batches nobody trains
ENOUGH = 0.98  # of the best accuracy of the reference: the target, where none is given
HALVINGS = 3  # between the last size that runs and the first that does not


@dataclass(frozen=True)
class Wish:
    """What is asked for."""

    target: float | None = None  # a validation accuracy
    sizes: tuple[int, ...] = ()  # none: doubled from 64 on
    budget: int = 6  # trainings of each size

    def __post_init__(self) -> None:
        if self.target is not None and not 0 < self.target <= 1:
            raise ConfigError(f"--target {self.target}: an accuracy above 0, at most 1, is needed")
        if any(size < 1 for size in self.sizes):
            raise ConfigError(f"--sizes {','.join(map(str, self.sizes))}: sizes must be at least 1")
        if self.budget < 1:
            raise ConfigError(f"--budget {self.budget}: at least 1 training of each size is needed")


@dataclass(frozen=True)
class Reached:
    """The best training at one size: the fewest steps to the target; None where no rate led there."""

    size: int
    lr: float | None = None
    steps: int | None = None
    seconds: float | None = None
    accuracy: float | None = None  # the best of all trainings
    trials: tuple[dict[str, Any], ...] = field(default=())
    failed: str | None = None


def tune(config: Config, plan: Plan, wish: Wish) -> dict[str, Any]:
    """Measure it all; what `manyhands tune batch-size --json` prints."""
    if find_spec("optuna") is None:
        raise MissingPackage("tune batch-size needs Optuna: pip install 'manyhands[search]'")
    sizes = sorted(set(wish.sizes)) or [FIRST]
    rule = config.optim
    # Rates are tuned as they are, and a batch size is one for the whole training.
    fixed = {"train.batch_size": sizes[0], "train.grow": None, "optim.scaling": "none"}
    config = with_values(located(config), fixed)
    speeds = Speeds(config, settled(config, plan))
    sizes, limit = _speeds(speeds, sizes, grows=not wish.sizes)
    guesses = {size: scaled(speeds.rate, rule, size) for size in sizes}
    target, critical = _reference(with_values(config, {"optim.lr": guesses[sizes[0]]}), speeds.plan, wish.target)
    reached = _pursuits(config, speeds.plan, guesses, target, wish.budget)
    if critical is not None:
        kept.keep(config, critical)
    return _answer(config, speeds, limit, reached, target, critical, wish.budget)


def _speeds(speeds: Speeds, sizes: list[int], grows: bool) -> tuple[list[int], Limit]:
    """The sizes that run, with those up to which training makes sense where none were given, and where they end."""
    say(f"measuring batch {sizes[0]}")
    speeds.at(sizes[0])
    if not speeds.validation:
        raise ConfigError("data.validation=0: the target is an accuracy of the validation part; leave some, as 0.05")
    if sizes[-1] > speeds.samples:
        raise ConfigError(f"--sizes {sizes[-1]}: the training set has {speeds.samples} samples; use at most as many")
    if grows:
        most = max(speeds.samples // LEAST_STEPS, sizes[0])
        sizes = list(takewhile(lambda size: size <= most, (sizes[0] << power for power in range(64))))
    doublings = (speeds.samples // sizes[0]).bit_length()
    with bar("measuring batch sizes", max(doublings, len(sizes)) + HALVINGS, "sizes") as shown:

        def told(speed: Speed) -> None:
            if speed.failed:
                say(f"  batch {speed.size} does not run: {speed.failed}")
            shown.advance(1, f"batch {speed.size}")

        speeds.told = told
        runs_at = list(takewhile(speeds.fits, sizes))
        limit = find_limit(speeds.fits, runs_at[-1], speeds.samples if runs_at == sizes else sizes[len(runs_at)])
    return runs_at, limit


def _reference(config: Config, plan: Plan, target: float | None) -> tuple[float, float | None]:
    """The target, and the critical batch that the noise in the gradients up to there predicts."""
    say(f"training at batch {config.train.batch_size}, with an eye on its gradients")
    curve = ask("reference", config, plan, target=target).known()["curve"]
    if not curve:
        raise RunError(f"the loss at batch {config.train.batch_size} is no number: give a lower rate, --set optim.lr=")
    wanted = target if target is not None else ENOUGH * max(accuracy for _, accuracy, _ in curve)
    return wanted, critical_batch(curve, wanted)


def _pursuits(config: Config, plan: Plan, guesses: Mapping[int, float], target: float, budget: int) -> list[Reached]:
    """The best training at each size; `guesses` are the rates around which the search begins."""
    found = []
    say(f"training to {100 * target:.2f} % at batch {', '.join(map(str, guesses))}")
    with bar("training to the target", budget * len(guesses), "trainings") as shown:
        for size, guess in guesses.items():
            own = with_values(config, {"train.batch_size": size})
            answer = ask("pursuit", own, plan, shown.advance, target=target, budget=budget, lr=guess)
            try:
                found.append(best_of(size, answer.known()["trials"]))
            except RunError as error:  # near the limit of memory a training may not run where steps did
                say(f"  no training at batch {size}: {error}")
                found.append(Reached(size, failed=str(error)))
    return found


def best_of(size: int, trials: Sequence[Mapping[str, Any]]) -> Reached:
    """The training with the fewest steps to the target."""
    every = Reached(size, accuracy=max(each["accuracy"] for each in trials), trials=tuple(map(dict, trials)))
    arrived = [each for each in trials if each["reached"]]
    if not arrived:
        return every
    best = min(arrived, key=lambda each: (each["steps"], each["seconds"]))
    return replace(every, lr=best["lr"], steps=best["steps"], seconds=best["seconds"])


def _answer(
    config: Config,
    speeds: Speeds,
    limit: Limit,
    reached: Sequence[Reached],
    target: float,
    critical: float | None,
    budget: int,
) -> dict[str, Any]:
    arrived = [each for each in reached if each.steps is not None]
    law = fit({each.size: float(each.steps or 0) for each in arrived})
    measured = law.critical_batch if law else None
    fast = knee(speeds.throughputs())
    by_size = {each.size: each for each in reached}
    return {
        "model": config.model.name,
        "data": config.data.name,
        "plan": str(speeds.plan),
        "optimizer": config.optim.name,
        "epochs": config.train.epochs,
        "budget": budget,
        "target": target,
        "best": _best(arrived),
        "knee": {"batch_size": fast, "samples_per_s": speeds.rows[fast].samples_per_s},
        "memory_limit": _limit(speeds, limit),
        "critical_batch": critical,
        "law": law.to_json() if law else None,
        "table": [
            {**row.to_json(), **_row(by_size.get(size), law, measured)} for size, row in sorted(speeds.rows.items())
        ],
    }


def _best(arrived: Sequence[Reached]) -> dict[str, Any] | None:
    """The size that was soonest at the target; None where no training came there."""
    if not arrived:
        return None
    best = min(arrived, key=lambda each: each.seconds or 0.0)
    return {"batch_size": best.size, "lr": best.lr, "steps": best.steps, "seconds": best.seconds}


def _limit(speeds: Speeds, limit: Limit) -> dict[str, Any]:
    why = speeds.rows[limit.fails].failed if limit.fails is not None else None
    return {"batch_size": limit.fits, "fails_at": limit.fails, "why": why or "the whole training set in one batch runs"}


def _row(reached: Reached | None, law: Law | None, critical: float | None) -> dict[str, Any]:
    """What the trainings at a size came to; nothing of sizes of which the speed alone was measured."""
    found = reached or Reached(0)
    return {
        **({"failed": found.failed} if found.failed else {}),
        "lr": found.lr,
        "steps_to_target": found.steps,
        "seconds_to_target": found.seconds,
        "accuracy": found.accuracy,
        "regime": regime(found.size, critical) if law and found.steps is not None else None,
        "trials": [{key: value for key, value in each.items() if key != "curve"} for each in found.trials],
    }
