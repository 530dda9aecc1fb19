"""Batches of one sample, and of fewer samples than there are ranks: as on one device."""

from pathlib import Path
from typing import Any

import pytest

from manyhands.engine.loop import checkpoint, checkpoint_folder
from manyhands.runs import run_folder

REST = "precision=fp64,layout=contiguous,compile=off,threads=1"
PLANS = ["data:2", "data:2,backend=gloo", "data:2,shard=full", "tensor:2", "owt:2", "pipeline:2", "data:2,tensor:2"]
PLANS += ["data:3", "pipeline:2,microbatches=2", "server:2+1", "local:2", "gossip:2", "ddp:2"]
SAME = set(PLANS) - {"local:2", "gossip:2", "ddp:2"}  # the others average weights, or have a precision of their own


def trained(manyhands: Any, plan: str, batch: int, out: Path) -> Any:
    settings = ("data.size=7", "data.test_size=9", "data.validation=0", "model.width=0.1", "train.max_steps=9")
    more = [
        word for each in (*settings, "model.dropout=0", "optim.name=sgd", "optim.lr=0.1") for word in ("--set", each)
    ]
    rest = "" if plan.startswith("ddp") else f",{REST}"
    return manyhands(
        "train", "mlp", "--data", "synthetic:1x6x6,4", "--plan", f"{plan}{rest}", "--batch-size", batch, *more,
        "--epochs", 9, "--out", out, "-q",
    )  # fmt: skip


@pytest.mark.parametrize("batch", [1, 2, 3])
@pytest.mark.parametrize("plan", [pytest.param(each, marks=[pytest.mark.long] * (each != "data:2")) for each in PLANS])
def test_small_batches(manyhands: Any, tmp_path: Path, plan: str, batch: int) -> None:
    said = trained(manyhands, plan, batch, tmp_path / "run")
    if said.code:
        assert said.code == 2, said.err
        assert f"batch of {batch}" in said.error or f"cuts {batch} samples" in said.error
        assert not (tmp_path / "run").exists()
        print(f"{plan}, batch {batch}: {said.error}")
        return
    if plan in SAME:
        assert trained(manyhands, "serial", batch, tmp_path / "one").code == 0
        runs = [run_folder.load(tmp_path / name) for name in ("run", "one")]
        losses = [[each["loss"] for each in run.metrics() if "loss" in each] for run in runs]
        assert losses[0] == pytest.approx(losses[1], rel=1e-6 if "server" in plan else 1e-9)  # a worker tells float32
        many, one = (checkpoint.load_model(checkpoint_folder.listing(run.checkpoints)[-1]) for run in runs)
        assert all((many[name] - one[name]).abs().max() < 1e-9 for name in one)
