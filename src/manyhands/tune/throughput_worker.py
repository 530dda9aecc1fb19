"""Throughput worker: how fast steps of one batch size are, and what memory they take; a child's work."""

import time
from typing import Any

from manyhands.engine.memory import peak_memory_mb, reset_peak_memory
from manyhands.machine.detect import detect
from manyhands.plan.plan import to_table
from manyhands.train.autotune import bind_together
from manyhands.train.job import assemble
from manyhands.train.step_timing import Steps
from manyhands.tune.child_process import Task

WARM = 5  # steps before all others: with capture the fourth is captured
TURN_SECONDS = 0.2
MOST_STEPS = 100  # of a turn
TURNS, FEW_TURNS = 5, 2
SLOW_SECONDS = 0.5  # of a step, from which on a few must do


def work(task: Task) -> dict[str, Any]:
    """Bind the plan where it is open, and take some steps."""
    open_plan = task.plan.with_defaults(compile="off")
    plan, _ = bind_together(task.team, open_plan, task.config, task.dataset, detect())
    job = assemble(task.config, plan, task.dataset, task.team)
    device = job.context.device
    reset_peak_memory(device)
    steps = Steps(job)
    steps.take(WARM - 1)
    each = _clocked(steps, 1)
    slow = each > SLOW_SECONDS
    turn = 1 if slow else min(max(round(TURN_SECONDS / each), 1), MOST_STEPS)
    turn, turns = task.team.broadcast_json((turn, FEW_TURNS if slow else TURNS))
    seconds = min(_clocked(steps, turn) for _ in range(turns))  # what else runs on the machine only ever adds
    return {
        "step_ms": 1000 * seconds,
        "samples_per_s": task.config.train.batch_size / seconds,
        "memory_mb": max(task.team.all_gather_json(peak_memory_mb(device))),
        "plan": to_table(plan),
        "lr": job.lr,
        "samples": len(task.dataset.train),
        "validation": len(task.dataset.validation),
    }


def _clocked(steps: Steps, count: int) -> float:
    """Seconds of a step."""
    begun = time.perf_counter()
    steps.take(count)
    return (time.perf_counter() - begun) / count
