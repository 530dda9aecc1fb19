"""Time to accuracy: how many steps, and how long, a training takes to a target accuracy; a child's work.

The validation part is scored ever less often, each time a tenth later than the last, so that steps to the target are
known alike at every batch size; and never before a quarter as many samples were trained with as it has itself. The time
of scoring is not counted.
"""

import gc
import math
import time
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

import torch

from manyhands.config import Config, with_values
from manyhands.engine.loop.evaluate import evaluate
from manyhands.engine.loop.loop import total_steps
from manyhands.engine.parameters.gradient_noise import Noise
from manyhands.engine.seed import RANK_SEEDS
from manyhands.optim.factory import set_lr
from manyhands.optim.lr_schedule import factor
from manyhands.train.job import Job, assemble
from manyhands.train.plan_constraints import has_two_gradients
from manyhands.train.step_timing import batches_with_shares
from manyhands.tune.child_process import Task

if TYPE_CHECKING:
    from optuna import Study

GROWS = 1.1  # from one scored step to the next
QUARTER = 4
WARM = 5  # steps of a model that nobody asked for: the first of a process are slower
SEED = 0  # of Optuna's sampler
RANGE = 10.0  # times below and above the guess
FIRST = (1.0, 1 / 3, 3.0)  # of the guess: what is tried before the sampler chooses


@dataclass
class TargetTrial:
    """One training towards a target."""

    lr: float
    steps: int = 0
    seconds: float = 0.0
    accuracy: float = 0.0  # the best so far
    reached: bool = False
    diverged: bool = False
    curve: list[tuple[int, float, float | None]] = field(default_factory=list)  # step, accuracy, noise scale

    @property
    def cost(self) -> float:
        """What the search makes small: the steps to the target, or more than were taken, by what was missing."""
        return float(self.steps) if self.reached else max(self.steps, 1) * (2 - self.accuracy)


def work(task: Task) -> dict[str, Any]:
    """Trainings with rates that Optuna chooses; each need only go on until it is no better than the best."""
    guess, budget = task.details["lr"], task.details["budget"]
    study = _study(guess)
    best: TargetTrial | None = None
    made = []
    _warm_up(task)
    for _ in range(budget):
        trial = study.ask()
        rate = task.team.broadcast_json(trial.suggest_float("lr", guess / RANGE, guess * RANGE, log=True))
        config = with_values(task.config, {"optim.lr": rate})
        chase = pursue(_job(task, config), config, task.details["target"], best.steps if best else None)
        study.tell(trial, chase.cost)
        if chase.reached and (best is None or chase.steps < best.steps):
            best = chase
        made.append(chase)
        gc.collect()  # a job's parts hold each other: the next needs their memory
        task.done()
    return {"trials": [{**asdict(chase), "curve": None} for chase in made]}


def reference(task: Task) -> dict[str, Any]:
    """One training with the model's own rate, whose gradients are looked at where there are several in a step."""
    alone = not task.plan.has_ranks and task.config.train.accumulate < 2
    config = with_values(task.config, {"train.accumulate": 2}) if alone else task.config
    job = _job(task, config)
    if has_two_gradients(task.plan, config):
        context = job.context
        context.strategy.watch(Noise(context.model.parameters(), task.team, context.device))
    chase = pursue(job, config, task.details["target"])
    task.done()
    return asdict(chase)


def pursue(job: Job, config: Config, target: float | None, most: int | None = None) -> TargetTrial:
    """Train until the target is reached, the epochs are over, or `most` steps are taken."""
    context, team, feed = job.context, job.context.team, job.context.feed
    assert job.validation is not None
    torch.manual_seed(config.train.seed + RANK_SEEDS * team.rank)
    total = total_steps(config.train.epochs, config.train.max_steps, feed.count)
    last = min(total, most or total)
    scored = sum(job.validation.share(number).whole for number in range(len(job.validation)))
    least = max(scored // (QUARTER * config.train.batch_size), 1)
    chase, due = TargetTrial(job.lr), least
    begun = time.perf_counter()
    for batch, share in batches_with_shares(job, config.train.epochs):
        set_lr(context.optimizer, job.lr * factor(config.optim, chase.steps, total))
        loss = job.step(batch, share)
        chase.steps += 1
        if chase.steps < min(due, last):
            continue
        due = max(chase.steps + least, math.floor(chase.steps * GROWS))
        # Sums of one step alone, in place: the step's own tensor may be a graph's.
        chase.diverged = not math.isfinite(team.sum(loss.detach().clone()).item())
        chase.seconds += time.perf_counter() - begun
        if chase.diverged:
            break
        accuracy = evaluate(context, job.validation).accuracy
        noise = context.strategy.noise
        chase.curve.append((chase.steps, accuracy, noise.read() if noise else None))
        chase.accuracy = max(chase.accuracy, accuracy)
        chase.reached = target is not None and accuracy >= target
        if chase.reached or chase.steps >= last:
            break
        begun = time.perf_counter()
    return chase


def _job(task: Task, config: Config) -> Job:
    job = assemble(config, task.plan, task.dataset, task.team)
    job.context.model.train()
    return job


def _warm_up(task: Task) -> None:
    job = _job(task, task.config)
    for batch, share in islice(batches_with_shares(job, WARM), WARM):
        job.step(batch, share)


def _study(guess: float) -> "Study":
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.TPESampler(seed=SEED, n_startup_trials=len(FIRST))
    study = optuna.create_study(direction="minimize", sampler=sampler)
    for times in FIRST:
        study.enqueue_trial({"lr": guess * times})
    return study
