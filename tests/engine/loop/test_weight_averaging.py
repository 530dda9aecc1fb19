"""The mean of weights is what torch's is, on one device and over ranks; the training does not notice, and resumes."""

from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, update_bn

from manyhands.config import Config, with_values
from manyhands.data.dataset import Dataset
from manyhands.data.load import load
from manyhands.data.schema import DataOptions
from manyhands.engine.loop import checkpoint, checkpoint_folder
from manyhands.engine.loop.checkpoint_folder import Position
from manyhands.engine.loop.loop import Loop, Settings
from manyhands.engine.loop.timers import Clock
from manyhands.engine.loop.weight_averaging import Average, ema, swa, taken
from manyhands.plan.spec import parse
from manyhands.progress import bar
from manyhands.train.job import Job, assemble

SERIAL = "serial,device=cpu,precision=fp32,layout=channels_last,kernels=torch,compile=off,capture=off,feed=device"
CONFIG = with_values(
    Config(),
    {"model.name": "convnet", "model.width": 0.25, "train.batch_size": 32, "train.epochs": 2, "optim.lr": 0.01},
)
NORMED = """
from torch import nn
def build():
    start = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5), nn.Flatten()
    return nn.Sequential(*start, nn.Linear(400, 8), nn.BatchNorm1d(8), nn.Linear(8, 4))
"""
STEPS = 12
KINDS = ("ema", "swa")


@pytest.fixture
def images() -> Dataset:
    return load("synthetic:1x12x12,4", DataOptions(size=200, test_size=50))


@pytest.fixture
def normed(tmp_path: Path) -> Config:
    """A model with batch norms and dropout, on shifted images."""
    (tmp_path / "net.py").write_text(NORMED)
    shifted = {"model.name": f"{tmp_path}/net.py:build", "model.width": 1.0, "data.augment": "shift"}
    return with_values(CONFIG, shifted)


class Records(list[dict[str, Any]]):
    """A recorder that keeps everything."""

    def __call__(self, record: dict[str, Any]) -> None:
        self.append(record)

    def flush(self) -> None:
        pass


def mean_of(job: Job, kind: str | None) -> Average | None:
    if kind is None:
        return None
    return ema(job.context, 0.9) if kind == "ema" else swa(job.context, 0.5, STEPS)


def run(
    job: Job,
    config: Config,
    mean: Average | None,
    folder: Path | None = None,
    position: Position | None = None,
    **settings: Any,
) -> Records:
    """Train, and give what was recorded."""
    usual = Settings(config.train.epochs, None, None, config.optim, job.lr, None, 100, folder)
    records, where = Records(), position or Position()
    if position is None:
        torch.manual_seed(config.train.seed)
    with bar("test", 1) as shown:
        clock, how = Clock(torch.device("cpu")), replace(usual, **settings)
        Loop(job.context, job.step, how, job.validation, clock, records, shown, where, average=mean).run()
    return records


def numbers(records: Records) -> list[tuple[Any, ...]]:
    """What must be the same again: all but times."""
    keys = ("step", "loss", "val_loss", "val_accuracy", "averaged_val_loss", "averaged_val_accuracy")
    return [tuple(each.get(key) for key in keys) for each in records]


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(each, other[name]) for name, each in one.items())


@pytest.mark.parametrize(
    ("total", "share", "per_epoch", "steps"),
    [
        (100, 0.4, 25, [64, 68, 72, 76, 80, 84, 88, 92, 96, 100]),
        (100, 0.1, 50, [*range(91, 101)]),
        (40, 1.0, 2, [*range(2, 41, 2)]),  # more than ten epochs: at their ends
        (10, 0.3, 5, [8, 9, 10]),  # not 4 of 10, though 0.3 · 10 is a little above 3
        (10, 0.01, 5, [10]),
    ],
)
def test_when_weights_are_taken(total: int, share: float, per_epoch: int, steps: list[int]) -> None:
    assert [step for step in range(1, total + 1) if taken(step, total, share, per_epoch)] == steps


def test_the_moving_average_is_that_of_torch(images: Dataset) -> None:
    """After every step, to the bit."""
    job = assemble(CONFIG, parse(SERIAL), images)
    reference = AveragedModel(job.context.model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    step = job.step

    def watched(*arguments: Any) -> Tensor:
        loss = step(*arguments)
        reference.update_parameters(job.context.model)
        return loss

    job.step = watched
    mean = ema(job.context, 0.9)
    run(job, CONFIG, mean)
    assert mean.count == STEPS
    assert same(mean.weights(), dict(reference.module.state_dict()))


def test_stochastic_weight_averaging_is_a_mean(images: Dataset, tmp_path: Path) -> None:
    job = assemble(CONFIG, parse(SERIAL), images)
    mean = swa(job.context, 0.5, STEPS)
    run(job, CONFIG, mean, tmp_path, every_steps=1)
    last = [checkpoint.load_model(tmp_path / f"step-{step:08d}") for step in range(7, 13)]
    for name, each in mean.weights().items():
        wanted = torch.stack([tensors[name] for tensors in last]).double().mean(0)
        assert torch.allclose(each.double(), wanted, rtol=1e-5, atol=1e-7), name


@pytest.mark.parametrize("kind", KINDS)
def test_the_training_does_not_notice(images: Dataset, normed: Config, kind: str, tmp_path: Path) -> None:
    """Though batch norms' statistics are taken anew, with dropout and shifts, which are drawn."""
    with_mean, without = (assemble(normed, parse(SERIAL), images) for _ in range(2))
    told = run(with_mean, normed, mean_of(with_mean, kind), tmp_path / "a", every_steps=4)
    plain = run(without, normed, None, tmp_path / "b", every_steps=4)
    assert [each[:4] for each in numbers(told)] == [each[:4] for each in numbers(plain)]
    assert same(with_mean.context.model.state_dict(), without.context.model.state_dict())


def test_statistics_of_batch_norms_are_those_of_the_mean(images: Dataset, normed: Config) -> None:
    still = with_values(normed, {"data.augment": "none"})
    job = assemble(still, parse(SERIAL), images)
    job.context.model[3].p = 0.0  # type: ignore[index, union-attr]
    mean = ema(job.context, 0.9)
    run(job, still, mean)
    found, context = mean.weights(), job.context
    model = deepcopy(context.model)
    model.load_state_dict(found)
    update_bn((context.feed.prepare(batch)[0] for batch in context.feed.epoch(0)), model)
    wanted = model.state_dict()
    statistics = [name for name in wanted if "running" in name]
    assert statistics
    for name in statistics:
        assert torch.allclose(found[name], wanted[name], rtol=1e-4, atol=1e-5), name
        assert not torch.allclose(found[name], context.model.state_dict()[name], rtol=1e-2), name


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("step", [4, 8])  # before stochastic weight averaging begins, and after
def test_resume_goes_on_to_the_bit(images: Dataset, normed: Config, tmp_path: Path, kind: str, step: int) -> None:
    whole = assemble(normed, parse(SERIAL), images)
    wanted_mean = mean_of(whole, kind)
    assert wanted_mean is not None
    wanted = run(whole, normed, wanted_mean, tmp_path, every_steps=4)
    again = assemble(normed, parse(SERIAL), images)
    mean = mean_of(again, kind)
    assert mean is not None
    position = checkpoint.restore(tmp_path / f"step-{step:08d}", again.context, mean)
    assert position.step == step
    told = run(again, normed, mean, position=position)
    assert numbers(told) == [each for each in numbers(wanted) if each[0] > step]
    assert same(mean.weights(), wanted_mean.weights())
    assert same(mean.weights(), checkpoint.load_model(tmp_path / "step-00000012", checkpoint_folder.AVERAGED))


def test_scores_stand_beside_the_ordinary_ones(images: Dataset, tmp_path: Path) -> None:
    """From the first epoch on, or from where averaging begins; a checkpoint without its mean is not whole."""
    for kind, epochs in (("ema", [1, 2]), ("swa", [2])):
        job = assemble(CONFIG, parse(SERIAL), images)
        told = run(job, CONFIG, mean_of(job, kind), tmp_path / kind)
        assert [each["epoch"] for each in told if "averaged_val_accuracy" in each] == epochs
        assert not [each for each in told if "loss" in each and "averaged_val_accuracy" in each]
    newest = tmp_path / "ema" / "step-00000012"
    assert checkpoint_folder.is_whole(newest)
    content = (newest / checkpoint_folder.AVERAGED).read_bytes()
    (newest / checkpoint_folder.AVERAGED).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert not checkpoint_folder.is_whole(newest)
    (newest / checkpoint_folder.AVERAGED).unlink()
    assert not checkpoint_folder.is_whole(newest)


CASE = "engine.average_cases:as_one_device"


@pytest.mark.parametrize(
    ("kind", "backend", "world", "model", "how"),
    [
        ("swa", "shm", 2, "convnet", "data:2"),
        ("ema", "gloo", 4, "alexnet", "data:4"),  # the last batch has nothing for one of them
        ("ema", "gloo", 2, "alexnet", "data:2,shard=full"),
        ("swa", "gloo", 3, "text", "data:3,shard=full"),  # uneven parts
        ("ema", "gloo", 2, "resnet18", "pipeline:2"),  # a rank has no part of many batch norms
        ("swa", "gloo", 2, "alexnet", "tensor:2"),
        pytest.param("swa", "mpi", 2, "alexnet", "data:2", marks=pytest.mark.long),
        pytest.param("ema", "shm", 2, "alexnet", "data:2", marks=pytest.mark.long),
        pytest.param("ema", "gloo", 2, "alexnet", "data:2,shard=optimizer", marks=pytest.mark.long),
        pytest.param("ema", "gloo", 4, "resnet18", "data:2,tensor:2", marks=pytest.mark.long),
        pytest.param("swa", "gloo", 2, "transformer", "pipeline:2,schedule=interleaved", marks=pytest.mark.long),
    ],
)
def test_ranks_give_what_one_device_gives(
    pools: Any, kind: str, backend: str, world: int, model: str, how: str
) -> None:
    pools(backend).run(CASE, backend, world, model, how, kind, {})


@pytest.mark.parametrize(
    ("backend", "how"), [("shm", "data:2"), ("gloo", "data:2,compress=topk"), ("gloo", "pipeline:2")]
)
def test_ranks_do_not_notice(pools: Any, backend: str, how: str) -> None:
    pools(backend).run("engine.average_cases:goes_unnoticed", backend, 2, "alexnet", how)
