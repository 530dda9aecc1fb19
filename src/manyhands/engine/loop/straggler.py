"""Straggler: a rank that is made slower on purpose, to see what the others' waiting costs.

A rank sleeps after its forward pass, by whose time it knows what a step takes it: a backward pass takes about two
forward passes, and in it ranks may wait for each other, which is no work.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from manyhands.data.sampler import Batch
from manyhands.engine.loop.context import Step
from manyhands.engine.loop.step import EagerStep
from manyhands.plan.stragglers import Fault

PASSES = 3  # of a step, each as long as the forward pass


@dataclass
class Slow:
    """Forward passes, each followed by sleep where the fault says so."""

    losses: Callable[[Batch], Tensor]
    factor: Callable[[int], float]  # how many times as long a pass takes, counted from 0
    device: torch.device
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.perf_counter
    passes: int = 0

    def __call__(self, batch: Batch) -> Tensor:
        start = self.clock()
        loss = self.losses(batch)
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        longer = self.factor(self.passes) - 1
        self.passes += 1
        if longer:
            self.sleep(longer * PASSES * (self.clock() - start))
        return loss


def slow_down(step: Step, fault: Fault, rank: int, seed: int) -> None:
    """Let a rank's steps take as much longer as the fault says; all parts of an accumulated batch alike."""
    if fault == Fault():
        return
    assert isinstance(step, EagerStep)
    parts = step.context.accumulate
    step.losses = Slow(step.losses, lambda number: fault.factor(rank, number // parts, seed), step.context.device)
