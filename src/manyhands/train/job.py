"""Job: config, bound plan and data put together into a model with its feeds, its optimizer and its step."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from manyhands.comm.ranks.rank_group import Team
from manyhands.config import Config
from manyhands.data.dataloader_feed import LoaderFeed
from manyhands.data.dataset import Dataset, Split
from manyhands.data.feeds import DeviceFeed, Feed, HostFeed
from manyhands.data.normalize import Normalize
from manyhands.data.sampler import Batches
from manyhands.data.schema import Schema
from manyhands.engine.loop.context import Step, TrainContext
from manyhands.engine.loop.cuda_graph import make_step
from manyhands.engine.loop.step import compiles_update
from manyhands.engine.loop.straggler import slow_down
from manyhands.engine.modules import cpu_kernels
from manyhands.engine.modules.device_placement import place
from manyhands.engine.modules.split_layers import deferring
from manyhands.engine.modules.sync_batchnorm import over_ranks
from manyhands.engine.parallelize import Layers, parallelize
from manyhands.engine.pipeline.pipeline_step import PipelineStep
from manyhands.engine.sharding.hybrid import Hybrid
from manyhands.errors import ConfigError, ModelError, PlanError
from manyhands.graph.coarsen import coarsen
from manyhands.graph.idle import idle_parameters
from manyhands.graph.trace import trace
from manyhands.models import zoo
from manyhands.optim import factory
from manyhands.optim.lr_scaling import base_rate
from manyhands.optim.options import TRUSTING
from manyhands.plan.plan import Plan
from manyhands.plan.resolve import devices_of, splits_of
from manyhands.plan.stages import pipeline_of
from manyhands.train.weights import build_model, check_outputs


@dataclass
class Job:
    """All that the loop needs."""

    context: TrainContext
    step: Step
    validation: Feed | None
    test: Feed
    lr: float


def assemble(
    config: Config,
    plan: Plan,
    dataset: Dataset,
    team: Team = Team(),  # noqa: B008, frozen
    told: Callable[[str], None] = lambda line: None,
    *,
    cuts: bool = False,
) -> Job:
    """Put a training together as the bound plan says; `told` hears what was taken from elsewhere and frozen.

    `cuts`: one rank, too, goes through its layers as those do that have parts of them.
    """
    device = device_of(plan)
    if device.type == "cuda" and not plan.is_baseline:
        choose_alike()
    model = build_model(config, dataset.schema, told)
    check_outputs(model, config.model.name, dataset)
    layers = (
        layers_of(model, plan, config, dataset.schema) if plan.is_model_parallel and (team.world > 1 or cuts) else None
    )
    idle = idle_parameters(model, sample_input(dataset.schema, 2)) if team.world > 1 else frozenset[str]()
    if hasattr(model, "begin_epoch") and (plan.capture == "on" or (team.world > 1 and layers is None)):
        raise PlanError(
            f"model {config.model.name} learns a block at a time, plan {plan.name} all at once: "
            "use serial,capture=off, pipeline:N or tensor:N"
        )
    if plan.kernels == "own":
        cpu_kernels.use_own(model)
    model = model.to(device, torch.float64 if plan.precision == "fp64" else None)
    if plan.layout == "channels_last":
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    place(model, plan.places, device)
    lr = base_rate(config.optim, zoo.default_lr(config.model.name), config.train.batch_size)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ModelError(f"model {config.model.name} has nothing to train: no parameter requires a gradient")
    make = partial(
        factory.build,
        options=config.optim,
        lr=lr,
        best=not plan.is_baseline,
        device=device.type,
        captured=plan.capture == "on",
        compiled=compiles_update(plan),
        sharded=plan.shard == "full" and plan.has_ranks,
        alone=not plan.has_ranks,
    )
    # Ranks that have other layers than each other see the same batch.
    feed_of = partial(make_feed, config, plan, dataset.schema, team if layers is None else Team())
    context = TrainContext(
        model=model,
        norms=[] if plan.is_baseline or layers or not plan.keeps_step else over_ranks(model, team),
        strategy=parallelize(
            model,
            make,
            config.train.clip,
            plan,
            team,
            layers,
            by_tensor=config.optim.name in TRUSTING,
            seed=config.train.seed,
            idle=idle,
        ),
        feed=feed_of(dataset.train, config.train.seed),
        loss=partial(functional.cross_entropy, label_smoothing=config.train.label_smoothing),
        precision=plan.precision or "fp32",
        device=device,
        accumulate=config.train.accumulate,
        team=team,
        later=deferring(model, plan.backward, device),
    )
    step: Step = make_step(context, plan, config.batch_sizes)
    if isinstance(context.strategy, Hybrid):
        number = plan.microbatches or config.train.accumulate
        step = PipelineStep(context, context.strategy, number, plan.boundary or "gather")
    if plan.has_ranks and plan.world == team.world:
        slow_down(step, config.fault.read(), team.rank, config.train.seed)
    return Job(
        context=context,
        step=step,
        validation=feed_of(dataset.validation, None) if len(dataset.validation) else None,
        test=feed_of(dataset.test, None),
        lr=lr,
    )


def choose_alike() -> None:
    """Have cuDNN choose its kernels by rule: what it picks by the clock gives the same seed another training.

    It costs 0 to 8 % of a step (benchmarks/results/same_kernels.md).
    """
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True


@contextmanager
def kernels_given_back() -> Iterator[None]:
    """What a training says to cuDNN holds for the training, and not for what its process does afterwards."""
    cudnn = torch.backends.cudnn
    before = cudnn.benchmark, cudnn.deterministic
    try:
        yield
    finally:
        cudnn.benchmark, cudnn.deterministic = before


def layers_of(model: nn.Module, plan: Plan, config: Config, schema: Schema) -> Layers:
    """The model's graph, how each of its layers is split, and in which stage it is."""
    graph = coarsen(trace(model, sample_input(schema, 2)))
    splits = splits_of(plan, graph, config.train.batch_size, devices_of(plan))
    return graph, splits, pipeline_of(plan, splits)


def sample_input(schema: Schema, samples: int) -> Tensor:
    """Something that a model of this data takes."""
    if schema.vocabulary:
        tokens = np.random.default_rng(0).integers(1, len(schema.vocabulary), (samples, *schema.shape))
        return torch.from_numpy(tokens)
    return torch.zeros(samples, *schema.shape)


def device_of(plan: Plan) -> torch.device:
    """The rank's own GPU, or the CPU."""
    if plan.device != "cuda":
        return torch.device("cpu")
    return torch.device("cuda", torch.cuda.current_device())


def make_feed(config: Config, plan: Plan, schema: Schema, team: Team, split: Split, seed: int | None) -> Feed:
    """The feed of a split; without a seed it goes in order."""
    device = device_of(plan)
    sizes = [config.train.batch_size] if seed is None else config.batch_sizes
    batches = Batches(len(split), sizes, seed, team.rank, team.world)
    if plan.feed == "loader":
        if config.data.augment != "none":
            raise ConfigError(f"data.augment={config.data.augment} does not go with feed=loader: use another plan")
        beside = plan.loader_cores[team.rank % len(plan.loader_cores)] if plan.loader_cores else ()
        return LoaderFeed(split, batches, schema, device, plan.workers or 0, pinned=not plan.is_baseline, cores=beside)
    contiguous = plan.layout != "channels_last"
    normalize = Normalize(schema, config.data.augment if seed is not None else "none", contiguous).to(device)
    return (DeviceFeed if plan.feed == "device" else HostFeed)(split, batches, normalize, device)


def check_sizes(config: Config, dataset: Dataset) -> None:
    if (largest := max(config.batch_sizes)) > len(dataset.train):
        grown = f" or train.grow than {config.train.grow}" if largest > config.train.batch_size else ""
        raise ConfigError(
            f"batch size {largest} is larger than the training set of {len(dataset.train)} samples: "
            f"choose a smaller --batch-size{grown}"
        )
    if not len(dataset.test):
        raise ConfigError(f"data {config.data.name} has no test samples: give a larger set")
