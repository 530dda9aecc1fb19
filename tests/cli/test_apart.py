"""Plans whose ranks do not keep step, through the command line."""

import os
from pathlib import Path

import pytest

from manyhands.runs import run_folder

REST = "precision=fp32,layout=contiguous,compile=off"
ORDER = ("train", "mlp", "--data", "synthetic:1x8x8,3", "--batch-size", 20, "--epochs", 2)
SMALL = ("--set", "data.size=400", "--set", "optim.name=momentum", "--set", "optim.lr=0.05")
STEPS = list(range(1, 39))  # of 380 samples, two epochs

pytestmark = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")


def curve(folder: Path) -> list[tuple[int, float]]:
    return [(each["step"], each["loss"]) for each in run_folder.load(folder).metrics() if "loss" in each]


@pytest.mark.parametrize(
    ("words", "setting", "backend"),
    [
        ("local:2", "fault.slow_steps=0.1:3x", "gloo"),
        pytest.param("local:3,every=4,average=elastic", "train.clip=1", "shm", marks=pytest.mark.long),
        ("data:2,consistency=stale,staleness=2", "fault.slow_rank=1:3x", "shm"),
        pytest.param("local:2", "fault.slow_steps=0.1:3x", "shm", marks=pytest.mark.long),
        pytest.param("local:3,every=4,average=elastic", "train.clip=1", "gloo", marks=pytest.mark.long),
        pytest.param("data:2,consistency=stale,staleness=2", "fault.slow_rank=1:3x", "gloo", marks=pytest.mark.long),
    ],
)
def test_trains(manyhands, tmp_path: Path, words: str, setting: str, backend: str) -> None:
    plan = ("--plan", f"{words},backend={backend},{REST}", "--set", setting)
    said = manyhands(*ORDER, *SMALL, *plan, "--out", tmp_path / "run", "--json", "-q")
    assert said.code == 0, said.err
    result, run = said.json, run_folder.load(tmp_path / "run")
    assert result["world"] == int(words.split(":")[1][0])
    assert [step for step, _ in curve(tmp_path / "run")] == STEPS
    assert curve(tmp_path / "run")[-1][1] == result["final_loss"]
    if "stale" in words:
        late = result["staleness"]
        assert sum(late["histogram"].values()) == 2 * len(STEPS)
        assert late["max"] <= 2
        assert 0 <= late["mean"] <= late["max"]
    else:
        assert result["staleness"] is None
        assert run.record["plan"]["every"] == (4 if "every" in words else 8)
    losses = [loss for _, loss in curve(tmp_path / "run")]
    assert sum(losses[-10:]) < 0.8 * sum(losses[:10])


@pytest.mark.long
def test_without_staleness_every_loss_is_that_of_one_device(manyhands, tmp_path: Path) -> None:
    for name, words in (("one", "serial"), ("stale", "data:2,consistency=stale,staleness=0")):
        said = manyhands(*ORDER, *SMALL, "--plan", f"{words},{REST}", "--out", tmp_path / name, "-q")
        assert said.code == 0, said.err
    assert [step for step, _ in curve(tmp_path / "stale")] == STEPS
    wanted = [loss for _, loss in curve(tmp_path / "one")]
    assert [loss for _, loss in curve(tmp_path / "stale")] == pytest.approx(wanted, rel=1e-4)


def test_a_loss_that_is_not_finite_ends_it(manyhands, tmp_path: Path) -> None:
    plan = ("--plan", f"data:2,consistency=stale,staleness=2,{REST}")
    said = manyhands(*ORDER, *SMALL, *plan, "--set", "optim.lr=1e30", "--out", tmp_path / "run", "-q")
    assert said.code == 1
    assert "is nan at step" in said.error or "is not finite" in said.error or "is inf at step" in said.error
