"""Autotune: give every open option of a plan a value before the engine sees it, the best that was measured here.

What is not said of `plain` gets PyTorch's defaults. For `serial`, what is known to help is taken (the
allocator, the feed, our kernels), and what depends on model, batch and machine is tried for some real steps:

    layout  →  precision  →  compile, where the training is long enough to repay it

Where the usual loader feeds, loader.workers=auto has its processes counted last, by steps with the loading in them.
"""

import hashlib
import json
import math
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

import manyhands
from manyhands.comm.ranks.rank_group import Team
from manyhands.config import Config, with_values
from manyhands.data.dataset import Dataset
from manyhands.engine.loop.loop import total_steps
from manyhands.errors import UNREADABLE, PlanError, RunError
from manyhands.files import home, write_json
from manyhands.machine.affinity import unused
from manyhands.machine.machine import Machine
from manyhands.models.zoo import learns_in_turns
from manyhands.optim.factory import can_capture
from manyhands.plan.plan import Plan, from_table, to_table
from manyhands.progress import say
from manyhands.train.checks.source_hash import source_hash
from manyhands.train.step_timing import Trial, measure, measure_fed

# Compiling costs up to half a minute; a training must be this long for a gain of a few percent to repay it.
LONG_ENOUGH_TO_COMPILE = {"cuda": 60.0, "cpu": 300.0}
WORTH = 0.97  # a candidate replaces the simpler one before it when its step takes at most this share

Told = dict[str, object]  # a trial as run.json tells it
Measure = Callable[[Config, Sequence[Plan], Dataset], list[Trial]]


def bind_together(
    team: Team, plan: Plan, config: Config, dataset: Dataset, machine: Machine
) -> tuple[Plan, list[Told]]:
    """As `bind`, by the leader of a team, who tells the others."""
    bound, trials = autotune(plan, config, dataset, machine) if team.is_leader else (plan, [])
    table, trials = team.broadcast_json((to_table(bound), trials))
    return from_table(table, "the leader's plan"), trials


def autotune(
    plan: Plan,
    config: Config,
    dataset: Dataset,
    machine: Machine,
    measure: Measure = measure,
    measure_fed: Measure = measure_fed,
) -> tuple[Plan, list[Told]]:
    """The plan with no open option, and the trials that chose it."""
    if plan.is_async:
        share = with_values(config, {"train.batch_size": -(-config.train.batch_size // plan.hands)})
        bound, told = autotune(plan.alone().with_defaults(compile="off"), share, dataset, machine, measure, measure_fed)
        return replace(plan, **bound.said()), told
    # A rank's share of the batch is what its step works on.
    share = with_values(config, {"train.batch_size": -(-config.train.batch_size // plan.world), "train.grow": None})
    bound, told = _bind_step(plan.with_defaults(workers=0), share, dataset, machine, measure)
    if plan.workers is None and config.loader.workers == "auto" and bound.feed == "loader":
        bound, fed = _choose_workers(bound, share, dataset, machine, measure_fed)
        told = [*told, *fed]
    return bound, told


def _bind_step(
    plan: Plan, config: Config, dataset: Dataset, machine: Machine, measure: Measure
) -> tuple[Plan, list[Told]]:
    """All but the number of loader processes."""
    if plan.capture == "on" and plan.device == "cpu":
        raise PlanError("plan option capture=on: only a GPU has captured graphs; leave it out")
    if plan.feed != "loader" and plan.workers and not plan.is_baseline:
        raise PlanError(f"plan option workers={plan.workers} is for feed=loader: say that too, or leave it out")
    if plan.is_baseline:
        bound = plan.with_defaults(
            precision="fp32",
            layout="contiguous",
            kernels="torch",
            compile="off",
            capture="off",
            feed="loader",
        )
        return bound.with_defaults(threads=torch.get_num_threads()), []
    on_gpu = plan.device == "cuda"
    plan = plan.with_defaults(
        kernels="torch" if on_gpu or plan.compile == "on" else "own",
        # A graph that DDP's exchange is captured in could not be tested on one GPU.
        capture="on" if on_gpu and not plan.has_ranks and _can_capture(config) else "off",
        feed="device" if dataset.fed_bytes < _room(plan, machine) else "host",
    )
    if plan.has_ranks and plan.backend != "shm":
        plan = plan.with_defaults(compile="off")  # its gain alone says little about the one under DDP
    if dataset.schema.kind != "image" or plan.shard == "full":
        plan = plan.with_defaults(layout="contiguous")
    if not _open(plan):
        return plan, []
    return _search(plan, config, dataset, machine, measure)


def _can_capture(config: Config) -> bool:
    """A graph keeps doing what it did when it was captured."""
    return can_capture(config.optim.name) and not learns_in_turns(config.model.name)


def _room(plan: Plan, machine: Machine) -> float:
    """Bytes that the resident set may take: half of the device's memory."""
    if plan.device == "cuda":
        sharers = -(-plan.world // torch.cuda.device_count()) if plan.has_ranks else 1
        return float(torch.cuda.mem_get_info()[0]) / 2 / sharers
    return machine.memory_bytes / 2


def _open(plan: Plan) -> list[str]:
    return [name for name in ("layout", "precision", "compile") if getattr(plan, name) is None]


def _search(
    plan: Plan, config: Config, dataset: Dataset, machine: Machine, measure: Measure
) -> tuple[Plan, list[Told]]:
    path = home() / "trials" / f"{_key(plan, config, dataset, machine)}.json"
    if (known := _remembered(path)) is not None:
        return known
    # Layout and precision are tried uncompiled, also where compiling is asked for: it would take minutes.
    best = replace(plan.with_defaults(layout="channels_last", precision="bf16"), compile="off")
    told: list[Told] = []
    step_ms = math.inf

    def attempt(**changes: Any) -> None:
        nonlocal best, step_ms
        say(f"trying {', '.join(f'{name}={value}' for name, value in changes.items())}")
        now, other = measure(config, [best, replace(best, **changes)], dataset)
        told.extend(trial.to_json() for trial in (now, other))
        best, step_ms = (other.plan, other.step_ms) if other.step_ms < now.step_ms * WORTH else (best, now.step_ms)

    if plan.layout is None:
        attempt(layout="contiguous")
    if plan.precision is None:
        attempt(precision="fp32")
    if plan.compile is None and not told:
        (only,) = measure(config, [best], dataset)
        step_ms = only.step_ms
        told.append(only.to_json())
    if step_ms == math.inf:
        raise RunError(f"model {config.model.name} does not run: {told[-1]['error']}")
    if plan.compile is None and _compile_may_pay(best, step_ms, config, dataset):
        attempt(compile="on")
    best = replace(best, compile=plan.compile or best.compile)
    write_json(path, {"plan": to_table(best), "trials": told})
    return best, told


def _choose_workers(
    plan: Plan, config: Config, dataset: Dataset, machine: Machine, measure: Measure
) -> tuple[Plan, list[Told]]:
    """As many loader processes as make an epoch shortest, their start included; the fewest of those that are alike."""
    path = home() / "trials" / f"{_key(replace(plan, workers=None), config, dataset, machine)}.json"
    if (known := _remembered(path)) is not None:
        return known
    candidates = loaders(plan, machine)
    say(f"trying workers={', '.join(str(each.workers) for each in candidates)}")
    trials = measure(config, candidates, dataset)
    told = [trial.to_json() for trial in trials]
    steps = -(-len(dataset.train) // (config.train.batch_size * plan.world))
    best = shortest(trials, min(steps, config.train.max_steps or steps))
    if best.step_ms == math.inf:
        raise RunError(f"model {config.model.name} does not run: {best.error}")
    bound = replace(best.plan, compile=plan.compile)
    write_json(path, {"plan": to_table(bound), "trials": told})
    return bound, told


def loaders(plan: Plan, machine: Machine) -> list[Plan]:
    """The plan with each number of loader processes that is worth a trial."""
    if plan.cores and not plan.is_baseline:
        plan = plan.with_defaults(loader_cores=unused(plan.cores, machine) or None)
    return [replace(plan, workers=number, compile="off") for number in worker_counts(plan, machine)]


def shortest(trials: Sequence[Trial], steps: int) -> Trial:
    """The one with the shortest epoch of so many steps; of those that are alike the one with the fewest processes."""
    best = trials[0]
    for trial in trials[1:]:
        if _fed_ms(trial, steps) < _fed_ms(best, steps) * WORTH:
            best = trial
    return best


def worker_counts(plan: Plan, machine: Machine) -> list[int]:
    """0, 1, 2, 4 …, as far as a rank's loader processes have a core each."""
    places = plan.loader_cores or plan.cores
    most = min(map(len, places)) if places else len(machine.cores) // plan.world
    return [0, 1, *(2**power for power in range(1, most.bit_length()) if 2**power <= most)]


def _fed_ms(trial: Trial, steps: int) -> float:
    """A step's share of an epoch: the loader starts its processes anew in each."""
    return trial.step_ms + max(trial.first_ms - trial.step_ms, 0) / steps


def _compile_may_pay(plan: Plan, step_ms: float, config: Config, dataset: Dataset) -> bool:
    device = plan.device or "cpu"
    if shutil.which("g++" if device == "cpu" else "gcc") is None or (device == "cuda" and not find_spec("triton")):
        return False
    per_epoch = -(-len(dataset.train) // config.train.batch_size)
    steps = total_steps(config.train.epochs, config.train.max_steps, lambda epoch: per_epoch)
    return steps * step_ms / 1000 > LONG_ENOUGH_TO_COMPILE[device]


def _key(plan: Plan, config: Config, dataset: Dataset, machine: Machine) -> str:
    """Everything that a step's time depends on. Compiling depends on the training's length too."""
    facts = {
        "plan": to_table(plan),
        "model": config.to_json()["model"],
        "file": source_hash(config.model.name),
        "optim": config.optim.name,
        "train": [config.train.clip, config.train.label_smoothing, config.data.augment],
        "batch": [
            config.train.batch_size,
            config.train.accumulate,
            dataset.schema.shape,
            len(dataset.schema.classes),
            len(dataset.schema.vocabulary),
        ],
        "length": [len(dataset.train), config.train.epochs, config.train.max_steps],
        "machine": machine.to_json(),
        "versions": [torch.__version__, manyhands.__version__],
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]


def _remembered(path: Path) -> tuple[Plan, list[Told]] | None:
    """What an earlier search found, if its file can be read."""
    try:
        known = json.loads(path.read_text())
        return from_table(known["plan"], str(path)), known["trials"]
    except UNREADABLE:
        return None
