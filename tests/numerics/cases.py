"""Ten steps of SGD over ranks, and the same on one device; each function runs in all ranks of a fresh group."""

import hashlib
from collections.abc import Iterable

import torch.distributed as dist
from torch import Tensor

from manyhands.comm.ranks.rank_group import Team
from manyhands.config import Config, with_values
from manyhands.data.dataset import Dataset
from manyhands.data.load import load
from manyhands.data.schema import DataOptions
from manyhands.plan.spec import parse
from manyhands.train.job import Job, assemble

# What to train on which shape; dropout apart, whose masks depend on the split.
MODELS = {
    "convnet": ("synthetic:1x12x12,4", {"model.width": 0.25, "model.dropout": 0.0}),
    "alexnet": (
        "synthetic:3x48x48,4",
        {"model.width": 0.0625, "model.dropout": 0.0, "model.batch_norm": True},
    ),
    "text": ("synthetic:text:12,4", {"model.width": 0.25, "model.dropout": 0.0}),
    "transformer": ("synthetic:text:12,4", {"model.width": 0.5, "model.dropout": 0.0}),
}
LIMIT = {"fp32": 1e-5, "fp64": 1e-10}
REST = "layout=contiguous,kernels=torch,compile=off,capture=off,feed=device,workers=0"
STEPS, BATCH = 10, 16
SAMPLES = 4 * BATCH + 3  # the last batch of an epoch has fewer samples than four ranks


def ordered(model: str, **changes: object) -> tuple[Config, Dataset]:
    """What to train, on what."""
    data, settings = MODELS[model]
    base = {"model.name": model, "train.batch_size": BATCH, "optim.name": "sgd", "optim.lr": 0.05, **settings}
    config = with_values(Config(), {**base, **{key.replace("__", "."): value for key, value in changes.items()}})
    return config, load(data, DataOptions(size=SAMPLES, validation=0))


def trained(job: Job, epochs: Iterable[int] = range(2)) -> Job:
    """Two epochs are ten steps."""
    feed = job.context.feed
    assert 2 * len(feed) == STEPS
    for epoch in epochs:
        for number, batch in enumerate(feed.epoch(epoch)):
            job.step(batch, feed.share(number, epoch))
    return job


def steps(model: str, words: str, team: Team, device: str = "cpu", **changes: object) -> Job:
    """The first ten steps."""
    config, dataset = ordered(model, **changes)
    return trained(assemble(config, parse(f"{words},device={device},{REST}"), dataset, team))


def distance(one: Tensor, other: Tensor) -> float:
    one, other = one.detach().cpu(), other.detach().cpu()
    return float((one.double() - other.double()).norm() / other.double().norm().clamp(min=1e-12))


def same_as_one_device(
    backend: str, rank: int, world: int, model: str, options: str, changes: dict[str, object], axis: str = "data"
) -> None:
    """Parameters and buffers within the limit of one device's, and the same to the bit on all ranks."""
    precision = "fp64" if "fp64" in options else "fp32"
    many = steps(model, f"{axis}:{world},backend={backend},{options}", Team(rank, world), **changes)
    weights = many.context.strategy.weights()
    one = steps(model, f"serial,precision={precision}", Team(), **changes).context.strategy.weights()
    far = {name: distance(tensor, one[name]) for name, tensor in weights.items()}
    assert max(far.values()) < LIMIT[precision], far
    digest = hashlib.sha256(b"".join(weights[name].contiguous().numpy().tobytes() for name in sorted(weights)))
    everyone: list[str] = [""] * world
    dist.all_gather_object(everyone, digest.hexdigest())
    assert len(set(everyone)) == 1


def apart(model: str, *trainings: tuple[str, float]) -> float:
    """How far two trainings on one device, of a precision and a rate, end from each other."""
    ends = [steps(model, f"serial,precision={precision}", Team(), optim__lr=rate) for precision, rate in trainings]
    one, other = (end.context.strategy.weights() for end in ends)
    return max(distance(tensor, one[name]) for name, tensor in other.items())
