"""Every way of doing the step computes the same function, and a resumed training goes on to the bit."""

import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from manyhands.config import Config, with_values
from manyhands.data.dataset import Dataset
from manyhands.data.load import load
from manyhands.data.schema import DataOptions
from manyhands.engine.loop import checkpoint, checkpoint_folder
from manyhands.engine.loop.checkpoint_folder import Position
from manyhands.engine.loop.layer_profiler import time_layers
from manyhands.engine.loop.loop import Loop, Settings
from manyhands.engine.loop.timers import Clock
from manyhands.errors import Diverged
from manyhands.optim.options import OPTIMIZERS
from manyhands.plan.spec import parse
from manyhands.progress import bar
from manyhands.train.job import Job, assemble

PLAIN = "plain,device=cpu,precision=fp32,layout=contiguous,kernels=torch,compile=off,capture=off,feed=loader,workers=0"
SERIAL = "serial,device=cpu,precision=fp32,layout=channels_last,kernels=own,compile=off,capture=off,feed=device"
CONFIG = with_values(
    Config(), {"model.name": "convnet", "model.width": 0.25, "model.dropout": 0.0, "train.batch_size": 32}
)


@pytest.fixture
def images() -> Dataset:
    return load("synthetic:1x12x12,4", DataOptions(size=200))


class Records:
    """A recorder that keeps everything in a list."""

    def __init__(self, records: list[dict[str, Any]]) -> None:
        self.records = records

    def __call__(self, record: dict[str, Any]) -> None:
        self.records.append(record)

    def flush(self) -> None:
        pass


def run(
    job: Job, config: Config, folder: Path | None = None, position: Position | None = None, **settings: Any
) -> list[dict[str, Any]]:
    """Train, and give what was recorded."""
    records: list[dict[str, Any]] = []
    usual = Settings(
        epochs=config.train.epochs,
        max_steps=config.train.max_steps,
        patience=config.train.patience,
        optim=config.optim,
        lr=job.lr,
        every_steps=None,
        keep=2,
        checkpoints=folder,
    )
    if position is None:
        torch.manual_seed(config.train.seed)
    with bar("test", 1) as shown:
        Loop(
            job.context,
            job.step,
            replace(usual, **settings),
            job.validation,
            Clock(torch.device("cpu")),
            Records(records),
            shown,
            position or Position(),
        ).run()
    return records


def losses(records: list[dict[str, Any]]) -> list[float]:
    return [each["loss"] for each in records if "loss" in each]


@pytest.mark.parametrize("model", ["convnet", "mlp", "resnet18", "alexnet"])
def test_serial_computes_what_plain_computes(images: Dataset, model: str) -> None:
    """Layout, kernels, feed and fused optimizer change the order of additions, nothing else."""
    data = load("synthetic:3x32x32,4", DataOptions(size=72)) if model in ("resnet18", "alexnet") else images
    values: dict[str, Any] = {"model.name": model, "model.width": 0.125, "optim.name": "sgd", "train.epochs": 1}
    if model != "convnet":
        values["model.dropout"] = None if model == "resnet18" else 0.0
    config = with_values(CONFIG, values)
    plain, serial = (assemble(config, parse(words), data) for words in (PLAIN, SERIAL))
    assert losses(run(serial, config)) == pytest.approx(losses(run(plain, config)), rel=1e-4)
    for (name, ours), theirs in zip(
        serial.context.model.named_parameters(), plain.context.model.parameters(), strict=True
    ):
        assert (ours - theirs).norm() / theirs.norm().clamp(min=1e-3) < 1e-4, name


@pytest.mark.parametrize("feed", ["host", "loader"])
def test_every_feed_trains_the_same(images: Dataset, feed: str) -> None:
    config = with_values(CONFIG, {"optim.name": "sgd", "train.epochs": 1})
    other = SERIAL.replace("feed=device", f"feed={feed}")
    ours, theirs = (losses(run(assemble(config, parse(words), images), config)) for words in (SERIAL, other))
    assert ours == pytest.approx(theirs, rel=1e-4)


@pytest.mark.long
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs g++")
@pytest.mark.filterwarnings("ignore")  # inside torch's compiler
def test_compiled_computes_what_eager_computes(images: Dataset) -> None:
    config = with_values(CONFIG, {"optim.name": "sgd", "train.epochs": 1})
    other = SERIAL.replace("compile=off", "compile=on").replace("kernels=own", "kernels=torch")
    eager, compiled = (losses(run(assemble(config, parse(words), images), config)) for words in (SERIAL, other))
    assert compiled == pytest.approx(eager, rel=1e-4)


def test_same_seed_same_losses(images: Dataset) -> None:
    config = with_values(CONFIG, {"model.dropout": 0.5, "train.epochs": 1})
    first, second, other = (
        losses(run(assemble(each, parse(SERIAL), images), each))
        for each in (config, config, with_values(config, {"train.seed": 1}))
    )
    assert first == second
    assert first != other


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("words", [PLAIN, SERIAL])
def test_resume_goes_on_to_the_bit(images: Dataset, tmp_path: Path, optimizer: str, words: str) -> None:
    """Stopped in the middle of the second epoch, with dropout and a schedule."""
    changes = {"model.dropout": 0.5, "optim.name": optimizer, "optim.schedule": "one-cycle", "train.epochs": 3}
    config = with_values(CONFIG, changes)
    whole = assemble(config, parse(words), images)
    wanted = losses(run(whole, config))

    run(assemble(config, parse(words), images), config, tmp_path, every_steps=8, keep=100)
    again = assemble(config, parse(words), images)
    position = checkpoint.restore(tmp_path / "step-00000008", again.context)
    assert (position.step, position.epoch, position.batch) == (8, 1, 2)
    assert losses(run(again, config, position=position)) == wanted[8:]
    for ours, theirs in zip(again.context.model.parameters(), whole.context.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_batches_that_grow(images: Dataset, tmp_path: Path) -> None:
    """Half as many steps in the second half, all samples in each; inside a grown epoch it is resumed to the bit."""
    changes = {"model.dropout": 0.5, "train.epochs": 4, "train.grow": "0.5:2", "optim.schedule": "cosine"}
    config = with_values(CONFIG, changes)
    whole = assemble(config, parse(SERIAL), images)
    wanted = run(whole, config, tmp_path, every_steps=14, keep=100)
    feed, samples = whole.context.feed, len(images.train)
    assert [feed.count(epoch) for epoch in range(4)] == [6, 6, 3, 3]
    assert [feed.share(0, epoch).whole for epoch in range(4)] == [32, 32, 64, 64]
    assert {sum(len(batch[0]) for batch in feed.epoch(epoch)) for epoch in range(4)} == {samples}
    assert [each["step"] for each in wanted if "epoch" in each] == [6, 12, 15, 18]

    again = assemble(config, parse(SERIAL), images)
    position = checkpoint.restore(tmp_path / "step-00000014", again.context)
    assert (position.step, position.epoch, position.batch) == (14, 2, 2)
    assert losses(run(again, config, position=position)) == losses(wanted)[14:]

    fixed = with_values(config, {"train.grow": None})
    assert losses(run(assemble(fixed, parse(SERIAL), images), fixed, max_steps=1))[0] == losses(wanted)[0]


def test_accumulation_is_one_batch(images: Dataset) -> None:
    config = with_values(CONFIG, {"optim.name": "sgd", "train.epochs": 1})
    parts = with_values(config, {"train.accumulate": 3})
    one, three = (assemble(each, parse(SERIAL), images) for each in (config, parts))
    assert losses(run(three, parts)) == pytest.approx(losses(run(one, config)), rel=1e-5)


def test_clipping_bounds_the_update(images: Dataset) -> None:
    config = with_values(CONFIG, {"optim.name": "sgd", "optim.lr": 1.0, "train.clip": 0.01, "train.max_steps": 1})
    job = assemble(config, parse(SERIAL), images)
    before = [each.clone() for each in job.context.model.parameters()]
    run(job, config)
    moved = [after - old for after, old in zip(job.context.model.parameters(), before, strict=True)]
    assert math.sqrt(sum(each.square().sum().item() for each in moved)) == pytest.approx(0.01, rel=1e-3)


def test_nan_names_the_step_and_leaves_the_good_checkpoint(images: Dataset, tmp_path: Path) -> None:
    config = with_values(CONFIG, {"train.epochs": 2})
    job = assemble(config, parse(SERIAL), images)
    step, calls = job.step, 0

    def poisoned(batch: Any, weight: float) -> torch.Tensor:
        nonlocal calls
        calls += 1
        if calls == 9:
            with torch.no_grad():
                next(job.context.model.parameters()).fill_(math.nan)
        return step(batch, weight)

    job.step = poisoned
    with pytest.raises(Diverged, match="nan at step 9 of 12"):
        run(job, config, tmp_path)
    kept = checkpoint_folder.newest_whole(tmp_path)
    assert kept is not None
    assert kept.name == "step-00000006"
    assert all(tensor.isfinite().all() for tensor in checkpoint.load_model(kept).values())


@pytest.mark.parametrize("settings", [{}, {"every_steps": 3}])
def test_weights_that_the_last_update_destroyed_are_not_kept(
    images: Dataset, tmp_path: Path, settings: dict[str, Any]
) -> None:
    """The loss of a step is finite although its update is not: the sixth, last of its epoch."""
    config = with_values(CONFIG, {"train.epochs": 2})
    job = assemble(config, parse(SERIAL), images)
    step, calls = job.step, 0

    def exploding(batch: Any, weight: float) -> torch.Tensor:
        nonlocal calls
        calls += 1
        loss = step(batch, weight)
        if calls == 6:
            with torch.no_grad():
                next(job.context.model.parameters()).fill_(math.inf)
        return loss

    job.step = exploding
    with pytest.raises(Diverged, match="a weight is not finite after step 6 of 12"):
        run(job, config, tmp_path, **settings)
    assert [path.name for path in checkpoint_folder.listing(tmp_path)] == (["step-00000003"] if settings else [])


def test_samples_per_s_counts_the_steady_steps(images: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 12 steps a quarter is left out, of 2 none; what compiles is left out and told apart."""
    for steps, slow, counted in ((12, 0, 9), (2, 0, 2), (12, 4, 8), (1, 0, 1)):
        config = with_values(CONFIG, {"train.epochs": 2, "train.max_steps": steps})
        job = assemble(config, parse(SERIAL), images)
        clock = Clock(torch.device("cpu"))
        with bar("test", 1) as shown:
            settings = Settings(2, steps, None, config.optim, job.lr, None, 2, None)
            Loop(job.context, job.step, settings, None, clock, Records([]), shown, Position(), slow_first=slow).run()
        assert clock.steady_steps == counted
        assert clock.samples_per_s == pytest.approx(clock.steady_samples / clock.steady_seconds)
        assert (clock.seconds["compile"] > 0) == (slow > 0)
        assert clock.seconds["train"] >= clock.steady_seconds


def test_losses_that_wait_on_the_device_are_recorded_once_and_in_order(
    images: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU: fetched only at the edges and at the end of an epoch."""
    config = with_values(CONFIG, {"train.epochs": 2})
    wanted = losses(run(assemble(config, parse(SERIAL), images), config))
    monkeypatch.setattr(Loop, "_flush_due", lambda loop: loop.position.step in (4, loop.steady_from))
    late = run(assemble(config, parse(SERIAL), images), config)
    assert [each["step"] for each in late if "loss" in each] == list(range(1, 13))
    assert losses(late) == wanted


def test_early_stopping_goes_back_to_the_best(images: Dataset, tmp_path: Path) -> None:
    """A rate of nearly 0 never improves after the first epoch."""
    config = with_values(CONFIG, {"train.epochs": 9, "train.patience": 2, "optim.lr": 1e-12})
    job = assemble(config, parse(SERIAL), images)
    records = run(job, config, tmp_path)
    assert [each["epoch"] for each in records if "epoch" in each] == [1, 2, 3]
    best = checkpoint_folder.best_of(tmp_path)
    assert best is not None
    assert best.name == "step-00000006"
    for name, tensor in checkpoint.load_model(best).items():
        assert torch.equal(job.context.model.state_dict()[name], tensor)


def test_old_checkpoints_go_but_the_best_stays(images: Dataset, tmp_path: Path) -> None:
    config = with_values(CONFIG, {"train.epochs": 5, "optim.lr": 1e-12})
    run(assemble(config, parse(SERIAL), images), config, tmp_path)
    assert [path.name for path in checkpoint_folder.listing(tmp_path)] == [
        "step-00000006",
        "step-00000024",
        "step-00000030",
    ]


def test_every_layer_is_timed(images: Dataset) -> None:
    job = assemble(CONFIG, parse(SERIAL), images)
    times = time_layers(job.context, next(iter(job.context.feed.epoch(0))))
    assert [each.name for each in times] == [name for name, _ in job.context.model.named_children()]
    assert all(each.forward_ms > 0 for each in times)
    assert all(each.backward_ms > 0 for each in times if each.parameters)
