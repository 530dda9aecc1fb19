"""LR range worker: a step at each of some growing rates, until the loss blows up; a child's work."""

import math
from typing import Any

import torch

from manyhands.engine.seed import RANK_SEEDS
from manyhands.machine.detect import detect
from manyhands.optim.factory import set_lr
from manyhands.train.autotune import bind_together
from manyhands.train.job import assemble
from manyhands.train.step_timing import batches_with_shares
from manyhands.tune.child_process import Task
from manyhands.tune.lr_range_test import is_blown, smoothed


def work(task: Task) -> dict[str, Any]:
    """The loss of each step, and whether the last was no number."""
    rates, team = task.details["rates"], task.team
    open_plan = task.plan.with_defaults(compile="off")
    plan, _ = bind_together(team, open_plan, task.config, task.dataset, detect())
    job = assemble(task.config, plan, task.dataset, team)
    job.context.model.train()
    torch.manual_seed(task.config.train.seed + RANK_SEEDS * team.rank)
    losses: list[float] = []
    diverged = False
    for rate, (batch, share) in zip(rates, batches_with_shares(job, len(rates)), strict=False):
        set_lr(job.context.optimizer, rate)
        loss = team.sum(job.step(batch, share).detach().clone()).item()
        diverged = not math.isfinite(loss)
        if diverged:
            break
        losses.append(loss)
        task.done()
        if is_blown(smoothed(losses)):
            break
    return {"plan": str(plan), "lr": rates[: len(losses) + diverged], "loss": losses, "diverged": diverged}
