"""The loop: epochs of steps with schedule, validation, checkpoints, early stopping and a watch for NaN."""

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from manyhands.compat import foreach_norm
from manyhands.data.feeds import Feed
from manyhands.engine.loop import checkpoint, checkpoint_folder
from manyhands.engine.loop.checkpoint_folder import Position
from manyhands.engine.loop.context import Step, TrainContext
from manyhands.engine.loop.cuda_graph import EAGER_BEFORE_CAPTURE
from manyhands.engine.loop.evaluate import evaluate
from manyhands.engine.loop.timers import Clock
from manyhands.engine.loop.weight_averaging import Average
from manyhands.engine.strategies.base import local
from manyhands.errors import Diverged
from manyhands.optim.factory import set_lr
from manyhands.optim.lr_schedule import factor
from manyhands.optim.options import OptimOptions
from manyhands.progress import Bar, say

STEADY_AFTER = 10  # steps left out of the steady state; a quarter of all steps when there are few
FLUSH_SECONDS = 0.25  # how long a GPU's losses may stay there
FLUSH_STEPS = 10  # the same for several ranks
RECORDS_A_STEP = 4


@dataclass(frozen=True)
class Settings:
    """How long to train and what to keep."""

    epochs: int
    max_steps: int | None
    patience: int | None  # epochs without a better validation accuracy
    optim: OptimOptions
    lr: float
    every_steps: int | None  # a checkpoint every N steps, beside the one after each epoch
    keep: int
    checkpoints: Path | None  # None: none are written


@dataclass(frozen=True)
class Outcome:
    """What a training came to."""

    final_loss: float
    val_accuracy: float | None  # of the weights that are kept
    steps: int
    kept: int  # the step whose weights are: the best by validation, where there is one, else the last
    stopped_early: bool
    averaged_val_accuracy: float | None = None  # of the mean of the weights, if one is kept


class Recorder(Protocol):
    """Receives a dictionary for each step and each validation; `flush` makes them safe before a checkpoint is."""

    def __call__(self, record: dict[str, Any]) -> None: ...

    def flush(self) -> None: ...


@dataclass
class Loop:
    """One training."""

    context: TrainContext
    step: Step
    settings: Settings
    validation: Feed | None
    clock: Clock
    record: Recorder
    bar: Bar
    position: Position
    slow_first: int = 0  # first steps that compile or capture: their time is told apart
    average: Average | None = None

    def __post_init__(self) -> None:
        self.total = total_steps(self.settings.epochs, self.settings.max_steps, self.context.feed.count)
        self.first = self.position.step
        steps = self.total - self.first
        self.steady_from = self.first + max(self.slow_first, min(STEADY_AFTER, steps // 4))
        self.pending: list[tuple[int, int, float, Tensor]] = []  # step, samples, rate, loss
        self.unwritten: deque[dict[str, Any]] = deque()
        self.flushed = time.perf_counter_ns()
        self.rate: float | None = None

    def run(self) -> Outcome:
        self.context.model.train()
        try:
            while self.position.step < self.total and not self._patience_spent():
                self._epoch()
                self._validate()
        finally:
            self._write()
        position, stopped = self.position, self._patience_spent()
        if stopped:
            say(f"stopped after epoch {position.epoch}: no better for {self.settings.patience} epochs")
        kept = self._back_to_best()
        accuracy = position.val_accuracy if kept == position.step else position.best_accuracy
        return Outcome(position.last_loss, accuracy, position.step, kept, stopped, position.averaged_val_accuracy)

    def _patience_spent(self) -> bool:
        return self.settings.patience is not None and self.position.bad_epochs >= self.settings.patience

    def _epoch(self) -> None:
        """Train to the end of the epoch, or to the last step."""
        position, every = self.position, self.settings.every_steps
        if begin := getattr(self.context.model, "begin_epoch", None):
            begin(position.epoch, self.settings.epochs)
        self.flushed = time.perf_counter_ns()
        feed, batches = self.context.feed, self.context.feed.count(position.epoch)
        for batch in feed.epoch(position.epoch, position.batch):
            rate = self.settings.lr * factor(self.settings.optim, position.step, self.total)
            if rate != self.rate:
                set_lr(self.context.optimizer, rate)
                self.rate = rate
            share = feed.share(position.batch, position.epoch)
            loss = self.step(batch, share)
            position.step += 1
            position.batch += 1
            if self.average is not None:
                self.average.after(position.step)
            self.pending.append((position.step, share.whole, rate, loss))
            if self._flush_due():
                self._flush(settled=self._at_edge())
            self._write(RECORDS_A_STEP)
            if every and position.step % every == 0 and position.batch < batches:
                self._flush(settled=True)
                self._write()
                self.context.strategy.sync_buffers()
                self._save(best=False)
            if position.step == self.total:
                break
        self._flush(settled=True)
        self._write()
        if position.batch == batches:
            position.epoch, position.batch = position.epoch + 1, 0

    def _at_edge(self) -> bool:
        """Whether what comes next is timed apart."""
        return self.position.step in (self.first + self.slow_first, self.steady_from)

    def _flush_due(self) -> bool:
        edge = self._at_edge()
        if self.context.team.world > 1:  # by count, since all ranks must do it at the same step
            return edge or (len(self.pending) >= FLUSH_STEPS and self.context.strategy.met)
        if self.context.device.type == "cpu":
            return True
        return edge or time.perf_counter_ns() - self.flushed > FLUSH_SECONDS * 1e9

    def _flush(self, settled: bool) -> None:
        """Fetch the losses that are known, account for their time, stop at the first that is not finite.

        `settled`: all of them, with what is still under way between ranks.
        """
        if settled:
            self.context.strategy.settle()
        if not self.pending:
            return
        losses = self.context.strategy.losses()
        if losses is None:
            losses = self.context.team.sum(torch.stack([loss for *_, loss in self.pending])).tolist()
        known, self.pending = self.pending[: len(losses)], self.pending[len(losses) :]
        if not known:
            return
        steps, samples, rates, _ = zip(*known, strict=True)
        now = time.perf_counter_ns()
        seconds, count = (now - self.flushed) / 1e9, len(steps)
        slow = steps[-1] <= self.first + self.slow_first
        label = f"step {steps[0]}" + (f" to {steps[-1]}" if count > 1 else "")
        self.clock.add("compile" if slow else "train", label, self.flushed, now)
        if steps[0] > self.steady_from:
            self.clock.add_steady(count, sum(samples), seconds)
        self.flushed = now
        for step, rate, loss in zip(steps, rates, losses, strict=True):
            if not math.isfinite(loss):
                raise self._diverged(f"the loss is {loss} at", step)
            self.unwritten.append({"step": step, "loss": loss, "lr": rate, "ms": 1000 * seconds / count})
        noise = self.context.strategy.noise
        if noise is not None and (scale := noise.read()) is not None:
            self.unwritten[-1]["noise_scale"] = scale
        self.position.last_loss = losses[-1]
        self.bar.advance(sum(samples), f"loss {losses[-1]:.4f}")

    def _write(self, most: int | None = None) -> None:
        """Record the oldest steps; a few at a time, so that a GPU always has the next step to work on."""
        for _ in range(len(self.unwritten) if most is None else min(most, len(self.unwritten))):
            self.record(self.unwritten.popleft())

    def _validate(self) -> None:
        """Score the validation part, keep the checkpoint, and count epochs without progress."""
        position, better = self.position, False
        self.context.strategy.sync_buffers()
        self._check_weights()
        if self.validation is not None:
            with self.clock.phase("eval", f"validation {position.epoch}"):
                score = evaluate(self.context, self.validation)
                mean = self.average.score(self.validation) if self.average else None
            self.record(
                {
                    "step": position.step,
                    "epoch": position.epoch,
                    "val_loss": score.loss,
                    "val_accuracy": score.accuracy,
                    "train_seconds": self.clock.seconds["train"],
                    **({"averaged_val_loss": mean.loss, "averaged_val_accuracy": mean.accuracy} if mean else {}),
                }
            )
            position.averaged_val_accuracy = mean.accuracy if mean else None
            position.val_loss, position.val_accuracy = score.loss, score.accuracy
            better = score.accuracy > position.best_accuracy
            position.bad_epochs = 0 if better else position.bad_epochs + 1
            position.best_accuracy = max(score.accuracy, position.best_accuracy)
        self._save(best=better)

    def _check_weights(self) -> None:
        """The loss of a step is taken before its update: only the weights show what the last update did."""
        mine = [local(each.detach()) for each in self.context.model.parameters()]
        bad = (~torch.stack(foreach_norm(mine)).isfinite()).sum()
        if self.context.team.sum(bad).item():
            raise self._diverged("a weight is not finite after", self.position.step)

    def _diverged(self, what: str, step: int) -> Diverged:
        return Diverged(
            f"{what} step {step} of {self.total}: lower the learning rate (it was {self.rate or 0:g}) "
            f"or set train.clip=1; {self._good()}"
        )

    def _good(self) -> str:
        folder = self.settings.checkpoints
        kept = checkpoint_folder.listing(folder) if folder is not None else []
        return f"the checkpoint of {kept[-1].name.replace('-', ' ', 1)} was kept" if kept else "there is no checkpoint"

    def _save(self, best: bool) -> None:
        if self.settings.checkpoints is None:
            return
        self._check_weights()
        self.position.seconds = dict(self.clock.seconds)
        with self.clock.phase("checkpoint"):
            self.record.flush()
            keep, folder = self.settings.keep, self.settings.checkpoints
            checkpoint.save(folder, self.context, self.position, keep=keep, best=best, average=self.average)
        self.flushed = time.perf_counter_ns()

    def _back_to_best(self) -> int:
        """Take the weights that are the run's result, as they are predicted with and exported; gives their step."""
        if self.settings.checkpoints is None or self.validation is None:
            return self.position.step
        self.context.team.barrier()  # the leader may still be writing it
        path = checkpoint_folder.best_of(self.settings.checkpoints)
        kept = self.position.step if path is None else int(path.name.removeprefix("step-"))
        if path is not None and kept != self.position.step:
            self.context.strategy.load_weights(checkpoint.load_model(path))
        self.context.team.barrier()
        return kept


def total_steps(epochs: int, most: int | None, count: Callable[[int], int]) -> int:
    """How many steps a training takes, of so many in each epoch."""
    steps = 0
    for epoch in range(epochs):
        steps += count(epoch)
        if most is not None and steps >= most:
            return most
    return steps


def slow_first_steps(compiled: bool, captured: bool) -> int:
    """How many first steps are not like the others."""
    return EAGER_BEFORE_CAPTURE + 1 if captured else int(compiled)
