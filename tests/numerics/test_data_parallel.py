"""Data parallelism over real ranks gives the parameters of one device."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from manyhands.plan.axis import Axis
from manyhands.plan.plan import Plan
from manyhands.plan.spec import write
from manyhands.runs import run_folder

PLAIN_OPTIONS = {"device": "cpu", "precision": "fp32", "layout": "contiguous", "compile": "off"}
CASES = [
    pytest.param(2, "convnet", "synthetic:1x12x12,4", ("model.width=0.25", "model.dropout=0"), marks=pytest.mark.long),
    (3, "convnet", "synthetic:1x12x12,4", ("model.width=0.25", "model.dropout=0")),
    pytest.param(2, "text", "synthetic:text:12,4", ("model.width=0.25", "model.dropout=0"), marks=pytest.mark.long),
    (2, "transformer", "synthetic:text:12,4", ("model.width=0.5", "model.dropout=0")),
]


def plan_file(folder: Path, world: int) -> Path:
    """A plan whose ranks may share cores: two cores are enough to prove numbers."""
    if world == 1:
        plan = Plan(axes=(Axis("serial"),), **PLAIN_OPTIONS)
    else:
        cores = tuple((rank % 2,) for rank in range(world))
        plan = Plan(axes=(Axis("data", world),), threads=1, cores=cores, **PLAIN_OPTIONS)
    write(plan, folder / f"plan{world}.toml")
    return folder / f"plan{world}.toml"


def tensors(folder: Path) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = load_file(
        run_folder.load(folder).checkpoints / "step-00000012" / "model.safetensors"
    )
    return found


@pytest.mark.parametrize(("world", "model", "data", "settings"), CASES, ids=lambda each: str(each)[:12])
def test_ranks_give_what_one_device_gives(
    manyhands, tmp_path: Path, world: int, model: str, data: str, settings: tuple[str, ...]
) -> None:
    """Twelve steps of SGD with momentum; 190 samples in batches of 16, so that the last one of 14 is uneven."""
    changes = ("data.size=200", "optim.name=momentum", "optim.lr=0.05", "train.clip=1", *settings)
    options = [word for change in changes for word in ("--set", change)]
    for ranks in (1, world):
        said = manyhands(
            "train", model, "--data", data, "--plan", plan_file(tmp_path, ranks), "--batch-size", 16, "--epochs", 1,
            *options, "--out", tmp_path / f"ranks{ranks}", "--json",
        )  # fmt: skip
        assert said.code == 0, said.err
        assert said.json["world"] == ranks
    one, many = (run_folder.load(tmp_path / f"ranks{ranks}") for ranks in (1, world))
    losses = [[each["loss"] for each in run.metrics() if "loss" in each] for run in (one, many)]
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
    for key in ("val_accuracy", "test_accuracy", "steps"):
        assert (many.result or {})[key] == (one.result or {})[key]
    wanted = tensors(one.folder)
    for name, tensor in tensors(many.folder).items():
        assert (tensor - wanted[name]).norm() / wanted[name].norm().clamp(min=1e-6) < 1e-5, name
    placed = many.record["ranks"]
    assert [rank["cores"] for rank in placed] == [[rank % 2] for rank in range(world)]
    assert len({rank["pid"] for rank in placed}) == world
