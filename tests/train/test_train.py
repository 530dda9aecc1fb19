"""What a training says when it cannot go on."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file

from manyhands.engine.loop import checkpoint_folder
from manyhands.runs import run_folder

Manyhands = Callable[..., Any]
DATA = ("--data", "synthetic:1x10x10,4", "--batch-size", 50, "--set", "data.size=500", "--epochs", 1, "-q")


@pytest.mark.parametrize("plan", ["serial,precision=fp32,compile=off", "plain"])
def test_a_model_that_is_too_large_is_blamed_beside_the_batch(manyhands: Manyhands, tmp_path: Path, plan: str) -> None:
    """100 terabytes in the first layer: more than any machine grants."""
    size = ("--set", "model.width=1e9", "--set", "model.depth=1")
    said = manyhands("train", "mlp", *DATA, *size, "--plan", plan, "--out", tmp_path / "run")
    assert said.code == 1
    hidden = 256 * 10**9
    assert f"out of memory with {100 * hidden + hidden + 4 * hidden + 4:,} parameters at batch 50 (" in said.error
    assert "use a smaller model (model.width, model.depth), a smaller --batch-size, or train.accumulate=2" in said.error
    assert run_folder.load(tmp_path / "run").status == "failed"


def test_a_model_that_cannot_be_counted_is_named(manyhands: Manyhands, tmp_path: Path) -> None:
    """Out of memory in a step, after a search in which no plan ran."""
    (tmp_path / "greedy.py").write_text(
        "import torch\n"
        "class Net(torch.nn.Linear):\n"
        "    def __init__(self):\n"
        "        super().__init__(4, 2)\n"
        "        assert self.weight.device.type == 'cpu'\n"
        "    def forward(self, x):\n"
        "        if self.training:\n"
        "            torch.empty(10**15)\n"
        "        return super().forward(x)\n"
    )
    said = manyhands(
        "train",
        f"{tmp_path}/greedy.py:Net",
        "--data",
        "synthetic:4,2",
        "--plan",
        "serial",
        "--out",
        tmp_path / "run",
        "-q",
    )
    assert said.code == 1
    assert f"out of memory with model {tmp_path}/greedy.py:Net at batch 256 (" in said.error


def test_a_set_without_numbers_is_refused(manyhands: Manyhands, tmp_path: Path) -> None:
    np.savez(tmp_path / "empty.npz", x=np.full((100, 4), np.nan), y=np.arange(100) % 2)
    said = manyhands(
        "train", "mlp", "--data", tmp_path / "empty.npz", "--batch-size", 10, "--out", tmp_path / "run", "-q"
    )
    assert said.code == 2
    assert f"{tmp_path}/empty.npz: 400 of 400 values in x are NaN or infinite" in said.error
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("plan", "how"),
    [
        ("serial,precision=fp32,compile=off", "swa=0.5"),
        pytest.param("data:2,precision=fp32,compile=off", "ema=0.9", marks=pytest.mark.long),
    ],
)
def test_averaged_weights_are_scored_beside_the_others(
    manyhands: Manyhands, tmp_path: Path, plan: str, how: str
) -> None:
    """And a run that has lost its last checkpoint comes to the same again."""
    words = ("--plan", plan, "--set", f"train.{how}", "--set", "checkpoint.every_steps=6", "--set", "checkpoint.keep=9")
    said = manyhands("train", "mlp", *DATA[:-1], *words, "--set", "optim.lr=0.01", "--out", tmp_path / "run", "--json")
    assert said.code == 0, said.err
    run = run_folder.load(tmp_path / "run")
    (validation,) = [each for each in run.metrics() if "epoch" in each]
    assert validation["averaged_val_accuracy"] == said.json["averaged_val_accuracy"]
    assert 0 <= said.json["averaged_test_accuracy"] <= 1
    newest = checkpoint_folder.listing(run.checkpoints)[-1]
    ordinary, mean = (load_file(newest / name) for name in (checkpoint_folder.TENSORS[0], checkpoint_folder.AVERAGED))
    assert ordinary.keys() == mean.keys()
    assert any((ordinary[name] != mean[name]).any() for name in mean)
    assert "test accuracy, averaged weights" in manyhands("show", tmp_path / "run").out

    (newest / checkpoint_folder.AVERAGED).unlink()
    run.update(status="interrupted")
    again = manyhands("train", "--resume", tmp_path / "run", "--json")
    assert again.code == 0, again.err
    keys = ("averaged_test_accuracy", "averaged_val_accuracy", "test_accuracy", "final_loss")
    assert [again.json[key] for key in keys] == [said.json[key] for key in keys]
    found = load_file(newest / checkpoint_folder.AVERAGED)
    assert all((found[name] == each).all() for name, each in mean.items())


def test_a_mean_that_is_mostly_of_the_first_weights_is_told(manyhands: Manyhands, tmp_path: Path) -> None:
    words = ("--plan", "serial,precision=fp32,compile=off", "--set", "train.ema=0.999", "--out", tmp_path / "run")
    said = manyhands("train", "mlp", *DATA[:-1], *words)
    assert said.code == 0
    assert "train.ema=0.999: after 10 steps 99 % of the mean are still the first weights" in said.err


def test_batches_that_grow(manyhands: Manyhands, tmp_path: Path) -> None:
    """475 samples: 10 batches of 50 in the first epoch, 5 of 100 in the second."""
    plan = ("--plan", "serial,precision=fp32,layout=contiguous,compile=off", "--epochs", 2)
    grows = ("--set", "train.grow=0.5:2", "--set", "optim.scaling=linear", "--set", "optim.lr=0.256")
    said = manyhands("train", "mlp", *DATA[:6], *grows, *plan, "--out", tmp_path / "run", "--json", "-q")
    assert said.code == 0, said.err
    assert said.json["steps"] == 15
    run = run_folder.load(tmp_path / "run")
    assert run.record["total_steps"] == 15
    assert {round(each["lr"], 9) for each in run.metrics() if "lr" in each} == {0.05}  # for the batch it begins with
    assert manyhands("export", run.folder, "--csv", tmp_path / "m.csv").code == 0
    rows = (tmp_path / "m.csv").read_text().splitlines()[1:]
    assert [row.split(",")[1] for row in rows] == ["1"] * 10 + ["2"] * 5


def test_batches_that_outgrow_the_set_are_refused(manyhands: Manyhands, tmp_path: Path) -> None:
    grows = ("--set", "train.grow=0.5:10", "--epochs", 2)
    said = manyhands("train", "mlp", *DATA[:6], *grows, "--plan", "serial", "--out", tmp_path / "run", "-q")
    assert said.code == 2
    assert "batch size 500 is larger than the training set of 475 samples" in said.error
    assert said.error.endswith("choose a smaller --batch-size or train.grow than 0.5:10")
