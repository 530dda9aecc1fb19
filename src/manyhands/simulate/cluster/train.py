"""Train: how fast and how accurate workers would be that are not at hand; trained for real, on a virtual clock."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from manyhands.config import Config
from manyhands.data.dataset import Dataset
from manyhands.data.load import load
from manyhands.data.sampler import Batches, share_of
from manyhands.engine.loop.loop import total_steps
from manyhands.errors import ConfigError, InputError, PlanError, choices
from manyhands.machine import cluster_toml
from manyhands.plan.axis import Axis
from manyhands.plan.consistency import EVERY, STALENESS
from manyhands.plan.plan import Plan
from manyhands.progress import bar
from manyhands.simulate.cluster.replicas import Gossip, LocalSGD
from manyhands.simulate.cluster.shared_weights import Free, Together
from manyhands.simulate.cluster.trainer import Learner
from manyhands.simulate.cluster.worker_timing import Wanted, own_options
from manyhands.simulate.worker_processes import Workers
from manyhands.simulate.worker_timing import WorkerTiming
from manyhands.train.job import assemble, check_sizes

KNOWN = ("serial", "data", "server", "local", "gossip")
PLAYS = {"shard": ("none",), "compress": ("none",), "precision": ("fp32", "bf16")}
# What a plan has that does not say it.
USUAL: dict[str, dict[str, Any]] = {
    "local": {"every": EVERY, "after": 0, "average": "mean"},
    "gossip": {"topology": "ring"},
    "server": {"consistency": "sync"},
}
WITHOUT = ("patience", "ema", "swa", "batch_auto")  # keys of train that it has no use for
GIGA = 1e9
PaceOf = Callable[[Wanted, str], tuple[Plan, WorkerTiming]]


@dataclass(frozen=True)
class Epoch:
    """Where a training stands after an epoch; validation takes no virtual time."""

    epoch: int
    virtual_seconds: float  # since the beginning
    epoch_seconds: float
    train_loss: float
    val_accuracy: float | None
    val_loss: float | None


@dataclass(frozen=True)
class Outcome:
    """What a training on a virtual cluster came to."""

    plan: Plan
    machine: str
    batch: int
    pace: WorkerTiming
    steps: int
    samples: int
    nanoseconds: int
    busy: int  # of all workers together
    epochs: tuple[Epoch, ...]
    staleness: dict[int, int]  # how often each was seen
    test_accuracy: float
    test_loss: float
    target: float

    @property
    def time_to_target(self) -> float | None:
        """Virtual seconds to the end of the first epoch that reached the target."""
        reached = (each.virtual_seconds for each in self.epochs if (each.val_accuracy or 0.0) >= self.target)
        return next(reached, None)

    @property
    def speedup(self) -> float:
        """Over one such device by itself with its share of the batch."""
        most = max(self.pace.compute)
        return self.samples / self.nanoseconds * (self.pace.compute[most] + self.pace.update) / most

    def to_json(self) -> dict[str, Any]:
        count = sum(self.staleness.values())
        late = {
            "mean": sum(value * times for value, times in self.staleness.items()) / count if count else 0.0,
            "max": max(self.staleness, default=0),
            "histogram": {str(value): self.staleness[value] for value in sorted(self.staleness)},
        }
        return {
            "plan": str(self.plan),
            "machine": self.machine,
            "workers": self.pace.workers,
            "batch_size": self.batch,
            "accuracy": self.test_accuracy,
            "loss": self.test_loss,
            "virtual_seconds": self.nanoseconds / GIGA,
            "epochs": [asdict(each) for each in self.epochs],
            "staleness": late,
            "target": self.target,
            "time_to_target": self.time_to_target,
            "steps": self.steps,
            "step_ms": self.nanoseconds / self.steps / 1e6,
            "samples_per_s": self.samples / self.nanoseconds * GIGA,
            "speedup_over_one_device": self.speedup,
            "idle_fraction": 1 - self.busy / (self.pace.workers * self.nanoseconds),
            "memory_mb": None,
            "exposed_comm_ms": None,
        }


def check(plan: Plan, config: Config, machine: str, target: float) -> Plan:
    """Refuse what has no virtual workers, and bind how they keep together."""
    name = plan.axes[0].name
    if plan.places or plan.layers or len(plan.axes) > 1 or name not in KNOWN:
        raise PlanError(f"plan {plan.name} cannot be simulated with --accuracy: {choices(plan.name, KNOWN)}")
    for option, allowed in PLAYS.items():
        value = getattr(plan, option)
        if value is not None and value not in allowed:
            raise PlanError(f"plan option {option}={value} cannot be simulated with --accuracy: leave it out")
    if machine != "here":
        cluster_toml.find(machine)  # an unknown one is refused
    elif plan.device == "cuda":
        raise PlanError(f"plan {plan}: workers of this machine are timed on the CPU; leave device=cuda out")
    if name == "data" and plan.consistency == "async":
        raise PlanError(f"plan {plan}: consistency=async needs servers; say server:{plan.world}+1,consistency=async")
    if name == "server" and plan.staleness is not None:
        plan = plan.with_defaults(consistency="stale")
    if plan.staleness is not None and plan.consistency != "stale":
        raise PlanError(f"plan {plan}: staleness={plan.staleness} is for consistency=stale; say that too")
    workers = plan.axes[0].degree
    if workers > config.train.batch_size:
        raise PlanError(f"plan {plan.name} has more workers than the batch of {config.train.batch_size} has samples")
    for key in WITHOUT:
        if value := getattr(config.train, key):
            raise ConfigError(f"train.{key}={value} does not go with --accuracy: leave it out")
    if not 0 < target <= 1:
        raise InputError(f"--target {target}: an accuracy above 0, at most 1, is needed")
    config.fault.read().check(workers)
    bound = plan.with_defaults(**USUAL.get(name, {}))
    return bound.with_defaults(staleness=STALENESS) if bound.consistency == "stale" else bound


def train(config: Config, plan: Plan, machine: str, target: float, pace_of: PaceOf) -> Outcome:
    """Train on a machine's virtual workers, from first to last epoch; `pace_of` tells how fast they are."""
    plan = check(plan, config, machine, target)
    dataset = load(config.data.name, config.data)
    check_sizes(config, dataset)
    sizes = [size for size in _sizes(config, len(dataset.train), plan.axes[0].degree) if size]
    plan, pace = pace_of(Wanted(config, plan, sizes), machine)
    return follow(learner_of(config, plan, dataset), plan, pace, machine, target)


def learner_of(config: Config, plan: Plan, dataset: Dataset) -> Learner:
    """Whoever does with real weights what the plan's workers do."""
    job = assemble(config, _alone(plan, dataset), dataset)
    torch.manual_seed(config.train.seed)
    batches = Batches(len(dataset.train), config.batch_sizes, config.train.seed)
    total = total_steps(config.train.epochs, config.train.max_steps, batches.count)
    told = (config, job, batches, plan.axes[0].degree, total)
    match plan.axes[0].name, plan.consistency:
        case "local", _:
            elastic = plan.average == "elastic"
            return LocalSGD(*told, every=plan.every or 1, after=plan.after or 0, elastic=elastic)
        case "gossip", _:
            return Gossip(*told, topology=plan.topology or "ring")
        case _, "async":
            return Free(*told, adapt=plan.adapt == "on")
        case _:
            in_step = plan.axes[0].name != "server" and plan.consistency != "stale"
            return Together(*told, staleness=plan.staleness or 0, in_step=in_step)


def follow(learner: Learner, plan: Plan, pace: WorkerTiming, machine: str, target: float) -> Outcome:
    """Let a crew of that pace work, and do the same with real weights."""
    config, steps, epochs = learner.config, [0] * pace.workers, list[Epoch]()
    first = now = busy = samples = 0
    title = f"training {config.model.name} with {pace.workers} virtual workers"
    with bar(title, learner.length) as shown:
        while first < learner.total:
            parts = learner.begin(len(epochs), first)
            crew, seen = Workers(pace, parts, steps, now), 0
            for act in learner.acts(crew):
                learner.obey(act)
                if learner.samples > seen:
                    shown.advance(learner.samples - seen, f"epoch {len(epochs) + 1}")
                    seen = learner.samples
            epochs.append(_epoch(len(epochs) + 1, crew.now, crew.now - now, learner))
            first, now, busy, samples = first + len(parts), crew.now, busy + crew.busy, samples + learner.samples
    test = learner.score(tested=True)
    assert test is not None
    return Outcome(
        plan=plan,
        machine=machine,
        batch=config.train.batch_size,
        pace=pace,
        steps=learner.total,
        samples=samples,
        nanoseconds=now,
        busy=busy,
        epochs=tuple(epochs),
        staleness=dict(learner.staleness),
        test_accuracy=test.accuracy,
        test_loss=test.loss,
        target=target,
    )


def _epoch(number: int, now: int, taken: int, learner: Learner) -> Epoch:
    score = learner.score(tested=False)
    return Epoch(
        epoch=number,
        virtual_seconds=now / GIGA,
        epoch_seconds=taken / GIGA,
        train_loss=learner.train_loss,
        val_accuracy=score.accuracy if score else None,
        val_loss=score.loss if score else None,
    )


def _alone(plan: Plan, dataset: Dataset) -> Plan:
    """How gradients are computed: by one process, as the plan's own options say."""
    image = dataset.schema.kind == "image"
    own = Plan(axes=(Axis("serial"),), **own_options(replace(plan, cores=None, loader_cores=None)))
    own = replace(own, compile="off", capture="off", feed="device", workers=0)
    return own.with_defaults(
        device="cpu",
        precision="fp32",
        layout="channels_last" if image else "contiguous",
        kernels="own" if own.device != "cuda" else "torch",
    )


def _sizes(config: Config, samples: int, workers: int) -> Iterator[int]:
    """The numbers of samples that a part may have."""
    for size in set(config.batch_sizes):
        for whole in {size, samples % size or size}:
            for rank in (0, workers - 1):
                yield share_of(whole, rank, workers).mine
