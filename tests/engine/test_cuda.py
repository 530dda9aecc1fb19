"""On a GPU: a captured or compiled step computes what the eager one does."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from manyhands.comm.ranks.rank_group import Team
from manyhands.config import Config, with_values
from manyhands.data.dataset import Dataset
from manyhands.data.load import load
from manyhands.data.sampler import Batch
from manyhands.data.schema import DataOptions
from manyhands.engine.loop.cuda_graph import CapturedStep
from manyhands.optim.factory import can_capture, set_lr
from manyhands.optim.options import OPTIMIZERS
from manyhands.plan.spec import parse
from manyhands.train.job import assemble
from numerics.cases import LIMIT, MODELS, distance, steps

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

EAGER = "serial,device=cuda,precision=fp32,layout=channels_last,kernels=torch,compile=off,capture=off,feed=device"
CAPTURED = EAGER.replace("capture=off", "capture=on")
COMPILED = CAPTURED.replace("compile=off", "compile=on")
CONFIG = with_values(
    Config(), {"model.name": "convnet", "model.width": 0.25, "model.dropout": 0.0, "train.batch_size": 32}
)


@pytest.fixture
def images() -> Dataset:
    return load("synthetic:1x12x12,4", DataOptions(size=200))


@pytest.fixture(autouse=True)
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Full fp32 in convolutions: reduced products would hide a difference."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


def losses(words: str, dataset: Dataset, **changes: Any) -> list[float]:
    """Two epochs with a rate that changes at every step; each has a smaller last batch."""
    config = with_values(CONFIG, {key.replace("__", "."): value for key, value in changes.items()})
    job = assemble(config, parse(words), dataset)
    found, batches = [], [batch for epoch in range(2) for batch in job.context.feed.epoch(epoch)]
    for number, batch in enumerate(batches):
        set_lr(job.context.optimizer, job.lr * (1 + number) / len(batches))
        found.append(job.step(batch).item())
    return found


@pytest.mark.parametrize("optimizer", [name for name in OPTIMIZERS if can_capture(name)])
def test_captured_is_eager(images: Dataset, optimizer: str) -> None:
    eager, captured = (losses(words, images, optim__name=optimizer) for words in (EAGER, CAPTURED))
    assert captured == pytest.approx(eager, rel=1e-4)


@pytest.mark.filterwarnings("ignore")  # torch's compiler warns of what it does itself
def test_compiled_is_eager(images: Dataset) -> None:
    assert losses(COMPILED, images) == pytest.approx(losses(EAGER, images), rel=1e-3)


def test_captured_with_clipping_and_accumulation(images: Dataset) -> None:
    changes = {"train__clip": 0.1, "train__accumulate": 2}
    assert losses(CAPTURED, images, **changes) == pytest.approx(losses(EAGER, images, **changes), rel=1e-4)


@pytest.mark.parametrize("backward", ["apart", "concurrent"])
def test_captured_with_weight_gradients_apart(images: Dataset, backward: str) -> None:
    found = losses(f"{CAPTURED},backward={backward}", images, train__accumulate=2)
    assert found == pytest.approx(losses(EAGER, images, train__accumulate=2), rel=1e-4)


def test_dropout_differs_at_every_replay(images: Dataset) -> None:
    config = with_values(CONFIG, {"model.dropout": 0.5, "optim.lr": 1e-12})
    job = assemble(config, parse(CAPTURED), images)
    batch: Batch = next(iter(job.context.feed.epoch(0)))
    found = [job.step(batch).item() for _ in range(8)]
    assert isinstance(job.step, CapturedStep)
    assert job.step.graphs
    assert len(set(found[4:])) == 4


def test_plain_computes_the_same(images: Dataset) -> None:
    plain = (
        EAGER.replace("serial", "plain").replace("feed=device", "feed=loader").replace("channels_last", "contiguous")
    )
    assert losses(plain, images) == pytest.approx(losses(CAPTURED, images), rel=1e-3)


# Strides along a dimension of one element differ by convention alone; DDP tells of them.
@pytest.mark.filterwarnings("ignore:Grad strides do not match bucket view strides:UserWarning")
@pytest.mark.parametrize("precision", ["fp32", "fp64"])
@pytest.mark.parametrize("model", MODELS)
def test_one_rank_over_nccl_is_one_device(tmp_path: Path, model: str, precision: str) -> None:
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("nccl", store=store, rank=0, world_size=1, device_id=torch.device("cuda", 0))
    try:
        words = (f"data:1,backend=nccl,precision={precision}", f"serial,precision={precision}")
        many, one = (steps(model, each, Team(), device="cuda").context.strategy.weights() for each in words)
    finally:
        dist.destroy_process_group()
    assert max(distance(tensor, one[name]) for name, tensor in many.items()) < LIMIT[precision]
