"""Workers that keep no step: exact where the mode is, learning where it is not, whole after a stop.

Most of it with threads in the place of processes, which take seconds to start; all else is as in a real run.
"""

import json
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from manyhands.engine.loop import checkpoint, checkpoint_folder
from manyhands.plan.plan import from_table
from manyhands.report.charts import runs
from manyhands.report.data import summary
from manyhands.report.data.group import group
from manyhands.runs import run_folder
from manyhands.runs.run_folder import order_of
from manyhands.train import async_training, async_worker

SAID = "precision=fp32,layout=contiguous,compile=off"
Trained = Callable[..., dict]


class Threads:
    """What a flock of processes is, as threads of this one."""

    def __init__(
        self, module: str, arguments: Sequence[str], world: int, environment: Mapping[str, str], ended: object
    ) -> None:
        os.environ.update(environment)
        self.folder, self.port = Path(arguments[0]), int(arguments[1])
        self.threads = [threading.Thread(target=self._hand, args=(rank,), daemon=True) for rank in range(world)]

    def _hand(self, rank: int) -> None:
        run = run_folder.load(self.folder)
        plan = from_table(run.record["plan"], "run.json")
        do = async_worker.serve if rank >= plan.axes[0].degree else async_worker.work
        do(order_of(run), plan, self.port, rank)

    def __enter__(self) -> "Threads":
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *about: object) -> None:
        for thread in self.threads:
            thread.join(20)


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(async_worker.WORD, "")
    monkeypatch.setattr(async_training, "ProcessSupervisor", Threads)


@pytest.fixture
def trained(manyhands, digits, tmp_path: Path) -> Trained:
    """The result of a training on the digits."""

    def call(
        words: str, name: str, *more: object, model: str = "mlp", optimizer: str = "momentum", precision: str = "fp32"
    ) -> dict:
        said = manyhands(
            "train", model, "--data", "digits", "--plan", f"{words},{SAID.replace('fp32', precision)}",
            "--batch-size", 96, "--epochs", 2, "--set", "data.size=1500", "--set", "model.dropout=0",
            "--set", f"optim.name={optimizer}", "--set", "optim.lr=0.05",
            *more, "--out", tmp_path / name, "--json", "-q",
        )  # fmt: skip
        assert said.code == 0, said.err
        return said.json

    return call


def weights(folder: Path) -> dict[str, Tensor]:
    return checkpoint.load_model(checkpoint_folder.listing(folder / "checkpoints")[-1])


def distance(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    return max(float((one[name] - other[name]).norm() / other[name].norm().clamp(min=1e-12)) for name in other)


def losses(folder: Path) -> list[float]:
    return [each["loss"] for each in run_folder.load(folder).metrics() if "loss" in each]


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("words", ["server:2+1", "server:3+2"])
@pytest.mark.parametrize("optimizer", ["momentum", "adam"])
def test_a_synchronous_server_trains_as_one_device_does(
    trained: Trained, tmp_path: Path, words: str, optimizer: str
) -> None:
    # In float32 Adam makes of another order of addition as much as 1e-4 on some processors.
    rate = ("--set", "optim.lr=0.01")
    trained("serial", "alone", *rate, optimizer=optimizer, precision="fp64")
    result = trained(words, "served", *rate, optimizer=optimizer, precision="fp64")
    assert distance(weights(tmp_path / "served"), weights(tmp_path / "alone")) < 1e-10
    assert losses(tmp_path / "served") == pytest.approx(losses(tmp_path / "alone"), rel=1e-6)
    assert result["staleness"]["max"] == 0
    assert len(result["peak_memory_mb_of_ranks"]) == result["world"]


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("optimizer", ["momentum", pytest.param("adam", marks=pytest.mark.long)])
def test_a_synchronous_server_trains_as_an_all_reduce_does(trained: Trained, tmp_path: Path, optimizer: str) -> None:
    for words, name in (("data:2,backend=gloo", "together"), ("server:2+1", "served")):
        trained(words, name, "--set", "optim.lr=0.01", optimizer=optimizer)
    assert distance(weights(tmp_path / "served"), weights(tmp_path / "together")) < 1e-6


@pytest.mark.usefixtures("threads")
def test_no_staleness_is_synchronous_to_the_bit(trained: Trained, tmp_path: Path) -> None:
    trained("server:2+1", "sync")
    trained("server:2+1,consistency=stale,staleness=0", "stale")
    sync, stale = weights(tmp_path / "sync"), weights(tmp_path / "stale")
    assert all(torch.equal(sync[name], stale[name]) for name in sync)
    assert losses(tmp_path / "sync") == losses(tmp_path / "stale")


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize(
    "words",
    [
        "server:2+1,consistency=async",
        "server:3+2,consistency=async,adapt=on",
        "server:2+1,consistency=stale,staleness=2",
        "gossip:2",
        "gossip:3,topology=exponential",
        "gossip:3,topology=pairs",
    ],
)
def test_each_mode_learns(trained: Trained, tmp_path: Path, words: str) -> None:
    result = trained(words, "run", "--epochs", 12, "--set", "optim.lr=0.003", optimizer="adam")
    run = run_folder.load(tmp_path / "run")
    assert result["test_accuracy"] > 0.7  # by chance it is a tenth
    assert result["steps"] == len(losses(tmp_path / "run")) == run.record["total_steps"]
    assert len(run.record["ranks"]) == result["world"]
    if "stale" in words:
        assert result["staleness"]["max"] <= 2
    staleness = runs.staleness(summary.rows(group([run])))
    assert (staleness is not None) == bool(result["staleness"] and result["staleness"]["max"])
    if words.startswith("server"):
        histogram = result["staleness"]["histogram"]
        assert sum(histogram.values()) == result["steps"] * int(words[7])


@pytest.mark.long
@pytest.mark.parametrize("words", ["gossip:2", "server:2+1,consistency=async"])
def test_processes_and_their_batch_norms(trained: Trained, tmp_path: Path, words: str) -> None:
    """What is scored, weights and running statistics alike, are those of the workers."""
    more = ("--epochs", 6, "--set", "optim.lr=0.003", "--set", "model.batch_norm=true")
    result = trained(words, "run", *more, model="convnet", optimizer="adam")
    assert result["test_accuracy"] > 0.5
    running = [each for name, each in weights(tmp_path / "run").items() if "running_mean" in name]
    assert running
    assert all(each.abs().sum() > 0 for each in running)
    assert len({rank["pid"] for rank in run_folder.load(tmp_path / "run").record["ranks"]}) == result["world"]


@pytest.mark.usefixtures("threads")
def test_a_synchronous_run_resumes_to_the_bit(trained: Trained, manyhands, tmp_path: Path) -> None:
    every = ("--set", "checkpoint.every_steps=5", "--set", "checkpoint.keep=99")
    trained("server:2+1", "whole", *every)
    trained("server:2+1", "part", *every)
    folder = tmp_path / "part"
    for each in checkpoint_folder.listing(folder / "checkpoints")[2:]:
        (each / "state.json").write_text("{")  # as a kill would leave it
    record = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**record, "status": "running"}))
    said = manyhands("train", "--resume", folder, "--json", "-q")
    assert said.code == 0, said.err
    whole, part = weights(tmp_path / "whole"), weights(folder)
    assert all(torch.equal(whole[name], part[name]) for name in whole)
    assert losses(tmp_path / "whole") == losses(folder)


@pytest.mark.parametrize(
    ("words", "more", "told"),
    [
        ("server:2+1,staleness=2,consistency=async", (), "staleness=2 is for consistency=stale"),
        ("server:2+1,adapt=on", (), "adapt=on is for consistency=async, this is sync"),
        ("server:2+1,device=cuda", (), "device=cuda cannot run yet: device=cpu can"),
        ("gossip:2,feed=loader", (), "feed=loader cannot run yet"),
        ("gossip:2,compress=topk", (), "compress=topk cannot run yet"),
        ("server:2+1", ("--set", "train.clip=1"), "train.clip=1.0 needs the sum of all gradients"),
        ("server:2+1", ("--set", "optim.name=lars"), "lars goes by the norms of whole tensors"),
        ("gossip:2,staleness=1", (), "staleness=1 has no use in plan gossip:2"),
        ("gossip:200", (), "gossip:200 has more ranks than the batch of 96 has samples"),
    ],
)
def test_what_cannot_run_is_refused(manyhands, tmp_path: Path, words: str, more: tuple[str, ...], told: str) -> None:
    said = manyhands(
        "train", "mlp", "--data", "digits", "--batch-size", 96, "--plan", words, *more, "--out", tmp_path / "run"
    )
    assert said.code == 2
    assert told in said.error
    assert not (tmp_path / "run").exists()
