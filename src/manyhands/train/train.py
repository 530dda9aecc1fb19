"""Train: data, binding, loop, evaluation and the result, for a run whose folder exists."""

import re
import time
from contextlib import ExitStack
from itertools import count
from typing import Any

import numpy as np
import torch

from manyhands.comm.ranks.rank_group import Team
from manyhands.compat import untested
from manyhands.config import Config, with_values
from manyhands.data.dataset import Dataset, Split
from manyhands.data.feeds import Feed
from manyhands.data.load import load
from manyhands.engine.loop import checkpoint, checkpoint_folder, weight_averaging
from manyhands.engine.loop.checkpoint_folder import Position
from manyhands.engine.loop.evaluate import evaluate
from manyhands.engine.loop.layer_profiler import LayerTime, time_layers
from manyhands.engine.loop.loop import Loop, Outcome, Settings, slow_first_steps, total_steps
from manyhands.engine.loop.timers import Clock
from manyhands.engine.loop.weight_averaging import Average
from manyhands.engine.memory import peak_memory_mb, reset_peak_memory
from manyhands.engine.parameters.gradient_noise import Noise
from manyhands.engine.seed import RANK_SEEDS
from manyhands.errors import PlanError, RunError
from manyhands.files import make_folder, write_json
from manyhands.machine.machine import Machine
from manyhands.plan.plan import Plan, to_table
from manyhands.progress import bar, say
from manyhands.runs import metrics_reader, run_folder, tensorboard
from manyhands.runs.metrics_writer import Metrics, metrics_of
from manyhands.train.async_training import conducted
from manyhands.train.autotune import bind_together
from manyhands.train.checks import sample_mixing
from manyhands.train.checks.agreement import alike
from manyhands.train.checks.guard import guard
from manyhands.train.checks.source_hash import DATA, check_data
from manyhands.train.job import Job, assemble, check_sizes, kernels_given_back
from manyhands.train.result import critical_batch, sent_bytes, staleness, timeline
from manyhands.train.weights import build_model

FIRST_SHARE = 0.05  # of a moving average: more of the first weights in it is worth a word


def train(
    run: run_folder.Run, config: Config, plan: Plan, team: Team, *, resume: bool, started: float
) -> dict[str, Any]:
    """Carry out a run in this process, alone or as one rank of a team, and give its result; the leader writes."""
    if plan.device == "cuda" and not torch.cuda.is_available():
        raise PlanError("plan option device=cuda: this torch sees no GPU; install a CUDA build or say device=cpu")
    if config.log.tensorboard and team.is_leader:
        tensorboard.check()
    clock = Clock(torch.device(plan.device or "cpu"))
    clock.seconds["setup"] = time.perf_counter() - started  # importing torch
    with clock.phase("setup", "data"):
        dataset = load(config.data.name, config.data)
        alike(team, {"data (checksum)": dataset.checksum, "samples": _part_sizes(dataset)})
        check_sizes(config, dataset)
        if resume:
            check_data(run, dataset)
    if team.is_leader:
        write_json(run.folder / "data.json", dataset.schema.to_json())
    try:
        with kernels_given_back():
            return _train(run, config, plan, dataset, team, clock, resume, started)
    except (RuntimeError, MemoryError, RunError) as error:
        if not _is_out_of_memory(error):
            raise
        first, *_ = str(error).strip().splitlines() or [type(error).__name__]
        raise RunError(
            f"out of memory with {_size(config, dataset)} at batch {config.train.batch_size} "
            f"({first}): use a smaller model (model.width, model.depth), a smaller --batch-size, or train.accumulate=2"
        ) from error


OUT_OF_MEMORY = re.compile(
    r"out of memory|can't allocate memory|could not allocate|failed to allocate|cannot allocate memory", re.IGNORECASE
)


def _is_out_of_memory(error: Exception) -> bool:
    """On the CPU torch says so in words alone, and a search in which no plan ran hands those words on."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    told = isinstance(error, RuntimeError) or type(error) is RunError
    return told and OUT_OF_MEMORY.search(str(error)) is not None


def _size(config: Config, dataset: Dataset) -> str:
    """How large the model is, built without memory; a user's own may not let itself be built so."""
    try:
        with torch.device("meta"):
            model = build_model(with_values(config, {"model.init_from": None, "model.freeze": ()}), dataset.schema)
        count = sum(parameter.numel() for parameter in model.parameters())
    except Exception:
        return f"model {config.model.name}"
    return f"{count:,} parameters"


def _train(
    run: run_folder.Run,
    config: Config,
    plan: Plan,
    dataset: Dataset,
    team: Team,
    clock: Clock,
    resume: bool,
    started: float,
) -> dict[str, Any]:
    with clock.phase("search"):
        machine = Machine.from_json(run.record["machine"])
        plan, trials = bind_together(team, plan, config, dataset, machine)
    with clock.phase("setup", "model"):
        if plan.compile == "on":
            torch.compiler.reset()  # else the ninth training of a process meets dynamo's limit and runs eagerly
        guard(config, plan, dataset, team)
        if team.is_leader:
            for line in filter(None, (untested(torch.__version__), sample_mixing.warning_of(config, plan, dataset))):
                say(line)
        job = assemble(config, plan.alone() if plan.is_async else plan, dataset, team, say)
        if (every := config.log.noise_steps) is not None:
            every = 1 if plan.capture == "on" else every  # a graph does the same at every step
            job.context.strategy.watch(Noise(job.context.model.parameters(), team, clock.device, every))
        mean = _average(config, job)
        position = _begin(run, config, job, mean, resume)
        first, before = position.step, sum(position.seconds.values())  # of the sessions before
        found = 0.0 if position.seconds else _searched(run)  # a session before has counted it
        clock.seconds["search"] += found
        for phase, seconds in position.seconds.items():
            clock.seconds[phase] += seconds
        reset_peak_memory(clock.device)
    if team.is_leader:
        run = run.update(
            plan=to_table(plan),
            plan_words=str(plan),
            trials=trials or run.record.get("trials", []),
            total_steps=total_steps(config.train.epochs, config.train.max_steps, job.context.feed.count),
            parameters=job.context.strategy.size,
            samples=_part_sizes(dataset),
            **{DATA: dataset.checksum},
        )
        say(f"plan {plan}")
    others: dict[str, Any] = {}
    with metrics_of(run, config, team.is_leader, first) as metrics:
        if plan.is_async:
            outcome, others = _conduct(run, config, plan, job, clock, position, metrics)
        else:
            outcome = _loop(run, config, plan, job, clock, position, metrics, mean)
        models = 1 if mean is None else 2
        with clock.phase("eval", "test"), bar("testing", models * len(dataset.test)) as shown:
            score = evaluate(job.context, job.test, shown.advance)
            averaged = mean.score(job.test, shown.advance) if mean else None
        metrics.tested(outcome.steps, score.loss, score.accuracy)
    told = team.all_gather_json((peak_memory_mb(clock.device), job.context.strategy.staleness()))
    peaks = [peak for peak, _ in told]
    if not team.is_leader:
        return {}
    with clock.phase("layers"):
        layers = _layers(job, plan)
    timeline(clock, layers).save(run.folder / "timeline.json")
    run_folder.load(run.folder).update(layers=[layer.to_json() for layer in layers])
    return {
        "run": str(run.folder),
        "plan": str(plan),
        "world": plan.world,
        "device": plan.device,
        "final_loss": outcome.final_loss,
        "test_accuracy": score.accuracy,
        "test_loss": score.loss,
        "test_majority": majority(dataset.test),
        "val_accuracy": outcome.val_accuracy,
        "averaged_test_accuracy": averaged.accuracy if averaged else None,
        "averaged_val_accuracy": outcome.averaged_val_accuracy,
        "weights": "best" if job.validation is not None else "last",
        "weights_step": outcome.kept,
        "steps": outcome.steps,
        "stopped_early": outcome.stopped_early,
        "samples_per_s": clock.samples_per_s,
        "seconds": {**clock.seconds, "total": before + found + time.perf_counter() - started},
        "measured_step_ms": clock.step_ms,
        "predicted_step_ms": run.record.get("search", {}).get("predicted_step_ms"),
        "peak_memory_mb": max(peaks),
        "peak_memory_mb_of_ranks": peaks,
        "critical_batch": critical_batch(run),
        **sent_bytes(job, outcome.steps - first),
        "staleness": staleness([seen for _, seen in told if seen]),
        **others,
    }


def _part_sizes(dataset: Dataset) -> dict[str, int]:
    return {part: len(getattr(dataset, part)) for part in ("train", "validation", "test")}


def majority(split: Split) -> float:
    """The share of the largest class: what a model reaches that has learned nothing else."""
    return float(np.bincount(split.labels[split.index]).max() / len(split))


def _searched(run: run_folder.Run) -> float:
    """Seconds in which batch size and plan were found before this process began; none where a plan was known."""
    told = run.record.get("search", {}).get("search", {})
    picked = float(run.record.get("batch", {}).get("seconds", 0.0))
    return picked + (0.0 if told.get("known") else float(told.get("seconds", 0.0)))


def _layers(job: Job, plan: Plan) -> list[LayerTime]:
    """The time of each layer; a finished training is not lost where a layer cannot be run alone."""
    if plan.shard == "full" or plan.is_model_parallel:
        return []  # a layer needs all ranks, and the leader times alone
    if plan.backward not in (None, "whole"):
        return []  # what comes later would count as the first layer's
    for norm in job.context.norms:
        norm.team = Team()
    try:
        return time_layers(job.context, next(iter(job.context.feed.epoch(0))))
    except Exception as error:
        say(f"layers were not timed: {type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}")
        return []


def _average(config: Config, job: Job) -> Average | None:
    """The mean of the weights that the order asks for."""
    steps = total_steps(config.train.epochs, config.train.max_steps, job.context.feed.count)
    if (decay := config.train.ema) is not None:
        if decay**steps > FIRST_SHARE:
            say(
                f"train.ema={decay:g}: after {steps} steps {100 * decay**steps:.0f} % of the mean are still the first "
                "weights; a smaller one forgets sooner"
            )
        return weight_averaging.ema(job.context, decay)
    return weight_averaging.swa(job.context, config.train.swa, steps) if config.train.swa is not None else None


def _begin(run: run_folder.Run, config: Config, job: Job, mean: Average | None, resume: bool) -> Position:
    """Seed everything, or put back where the newest intact checkpoint stood."""
    team = job.context.team
    torch.manual_seed(config.train.seed + RANK_SEEDS * team.rank)  # dropout differs between ranks
    path = None
    if team.is_leader:
        make_folder(run.checkpoints)
        path = checkpoint_folder.newest_whole(run.checkpoints) if resume else None
        checkpoint_folder.forget_after(run.checkpoints, path)
        if resume:
            say(f"resuming from {path.name}" if path else "no intact checkpoint: starting from the beginning")
    path = team.broadcast_json(path)
    position = checkpoint.restore(path, job.context, mean) if path else Position()
    if team.is_leader:
        metrics_reader.cut_metrics(run, position.step if path else -1)
    return position


def _conduct(
    run: run_folder.Run, config: Config, plan: Plan, job: Job, clock: Clock, position: Position, metrics: Metrics
) -> tuple[Outcome, dict[str, Any]]:
    """The loop, with steps that workers carry out; and what the result says of them."""

    with ExitStack() as stack:
        with clock.phase("setup", "workers"):
            led, coordinator = stack.enter_context(conducted(run, config, plan, job, position))
        outcome = _loop(run, config, plan, led, clock, position, metrics)
        peaks = [each["peak_memory_mb"] for each in coordinator.end() if "peak_memory_mb" in each]
        return outcome, {
            "peak_memory_mb": max(peaks),
            "peak_memory_mb_of_ranks": peaks,
            "staleness": staleness([coordinator.late]),
        }


def _loop(
    run: run_folder.Run,
    config: Config,
    plan: Plan,
    job: Job,
    clock: Clock,
    position: Position,
    metrics: Metrics,
    mean: Average | None = None,
) -> Outcome:
    settings = Settings(
        epochs=config.train.epochs,
        max_steps=config.train.max_steps,
        patience=config.train.patience,
        optim=config.optim,
        lr=job.lr,
        every_steps=config.checkpoint.every_steps,
        keep=config.checkpoint.keep,
        checkpoints=run.checkpoints,
    )
    feed = job.context.feed
    steps = total_steps(config.train.epochs, config.train.max_steps, feed.count)
    with bar(f"training {config.model.name}", _samples(feed, steps)) as shown:
        shown.advance(_samples(feed, position.step))
        return Loop(
            job.context,
            job.step,
            settings,
            job.validation,
            clock,
            metrics,
            shown,
            position,
            slow_first=slow_first_steps(plan.compile == "on", plan.capture == "on"),
            average=mean,
        ).run()


def _samples(feed: Feed, steps: int) -> int:
    """How many the first steps of a training have, last batches counted as full ones."""
    samples = 0
    for epoch in count():
        here = min(steps, feed.count(epoch))
        samples, steps = samples + here * feed.share(0, epoch).whole, steps - here
        if not steps:
            break
    return samples
