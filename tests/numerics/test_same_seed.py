"""The same seed gives the same training, to the last digit, dropout on; so does a training that was resumed."""

import hashlib
import shutil
from pathlib import Path
from typing import Any

import pytest

from manyhands.plan.plan import from_table
from manyhands.plan.spec import write
from manyhands.runs import run_folder

PLANS = [
    *("plain", "ddp:2", "serial", "serial,backward=apart", "data:2", "data:2,backend=gloo", "data:2,backend=mpi"),
    *("data:2,shard=optimizer", "data:2,shard=full", "data:2,backend=gloo,compress=bf16"),
    *("data:2,backend=gloo,compress=topk", "data:2,backend=gloo,compress=powersgd"),
    *("data:2,consistency=stale,staleness=0",),
    *("tensor:2", "owt:2", "pipeline:2", "pipeline:2,microbatches=4", "pipeline:2,microbatches=4,recompute=on"),
    *("pipeline:2,microbatches=4,schedule=1f1b", "pipeline:2,microbatches=4,schedule=zerobubble"),
    *("pipeline:2,microbatches=4,schedule=interleaved", "data:2,tensor:2", "tensor:2,pipeline:2", "local:2"),
    *("local:2,average=elastic", "server:2+1", "server:2+2"),
]  # fmt: skip
# What gradients come in time for a step is the clock's to say (docs/reproducible.md).
BY_THE_CLOCK = ["data:2,consistency=stale", "server:2+1,consistency=stale", "server:2+1,consistency=async", "gossip:2"]
SHORT = ["serial", "server:2+1"]
SETTINGS = ("data.size=300", "data.test_size=50", "train.max_steps=8", "model.dropout=0.3", "model.width=0.125")


def arguments(plan: object, out: Path) -> list[object]:
    more = [word for each in (*SETTINGS, "checkpoint.every_steps=3", "checkpoint.keep=9") for word in ("--set", each)]
    return ["train", "mlp", "--data", "digits", "--batch-size", 64, "--plan", plan, "--out", out, "--json", *more]


def came_of(folder: Path) -> tuple[list[float], str, Any]:
    """Losses, the last weights, and the score."""
    run = run_folder.load(folder)
    last = max(run.checkpoints.glob("step-*"))
    weights = hashlib.sha256((last / "model.safetensors").read_bytes()).hexdigest()
    result = run.result or {}
    return [each["loss"] for each in run.metrics() if "loss" in each], weights, (result["test_loss"], result["steps"])


def resumed(manyhands: Any, run: Path, step: Path, out: Path) -> Path:
    """A copy of a run that goes on from a checkpoint, as if it had been interrupted after it."""
    shutil.copytree(run, out)
    for each in (out / "checkpoints").glob("step-*"):
        if each.name > step.name:
            shutil.rmtree(each)
    run_folder.load(out).update(status="interrupted", result=None)
    said = manyhands("train", "--resume", out, "--json")
    assert said.code == 0, said.err
    return out


@pytest.mark.parametrize("plan", [pytest.param(each, marks=[pytest.mark.long] * (each not in SHORT)) for each in PLANS])
def test_the_same_training(manyhands: Any, request: Any, tmp_path: Path, plan: str) -> None:
    if "backend=mpi" in plan:
        pytest.importorskip("mpi4py")
    said = manyhands(*arguments(f"{plan},precision=fp32" if plan not in ("plain", "ddp:2") else plan, tmp_path / "a"))
    assert said.code == 0, said.err
    once = came_of(tmp_path / "a")
    assert len(set(once[0])) == 8
    write(from_table(run_folder.load(tmp_path / "a").record["plan"], "run.json"), tmp_path / "plan.toml")
    said = manyhands(*arguments(tmp_path / "plan.toml", tmp_path / "b"))
    assert said.code == 0, said.err
    assert came_of(tmp_path / "b") == once
    steps = sorted((tmp_path / "a" / "checkpoints").glob("step-*"))
    assert len(steps) > 2
    some = plan in SHORT and request.config.getoption("markexpr")  # of `make test`
    for step in steps[:1] if some else steps:
        assert came_of(resumed(manyhands, tmp_path / "a", step, tmp_path / step.name)) == once, step.name


@pytest.mark.long
@pytest.mark.parametrize("plan", BY_THE_CLOCK)
def test_what_goes_by_the_clock_is_resumed_all_the_same(manyhands: Any, tmp_path: Path, plan: str) -> None:
    assert manyhands(*arguments(f"{plan},precision=fp32", tmp_path / "a")).code == 0
    for step in sorted((tmp_path / "a" / "checkpoints").glob("step-*")):
        assert len(came_of(resumed(manyhands, tmp_path / "a", step, tmp_path / step.name))[0]) == 8
