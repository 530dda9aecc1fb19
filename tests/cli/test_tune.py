"""`manyhands tune`, `train --batch-size auto` and `log.noise`, on small real work."""

import json
from pathlib import Path
from typing import Any

import pytest

from manyhands.runs import run_folder
from manyhands.tune import batch_size

BOUND = "serial,device=cpu,precision=fp32,layout=contiguous,compile=off,threads=1"
NARROW = ("--set", "model.width=0.25", "--set", "data.test_size=100")
SMALL = ("--set", "data.size=280", *NARROW)  # 266 samples to train with


@pytest.fixture(autouse=True)
def one_home(shared_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The set is decoded once."""
    monkeypatch.setenv("MANYHANDS_HOME", str(shared_home))


@pytest.mark.long
def test_batch_size(manyhands: Any, tmp_path: Path) -> None:
    table, plot = tmp_path / "new" / "table.json", tmp_path / "plot.png"
    said = manyhands(
        "tune", "batch-size", "mlp", "--plan", BOUND, *SMALL, "--sizes", "266,32", "--target", 0.5, "--budget", 2,
        "--epochs", 30, "-o", table, "--plot", plot, "--json",
    )  # fmt: skip
    assert said.code == 0, said.err
    found = said.json
    assert json.loads(table.read_text()) == found
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert [row["batch_size"] for row in found["table"]] == [32, 266]
    for row in found["table"]:
        assert row["samples_per_s"] > 0
        assert row["memory_mb"] > 0
        assert row["steps_to_target"] > 0
        assert row["seconds_to_target"] > 0
        assert row["accuracy"] >= 0.5
        assert len(row["trials"]) == 2
        assert row["regime"] is None  # two sizes would fit any law
    soonest = min(found["table"], key=lambda row: row["seconds_to_target"])
    assert found["best"]["batch_size"] == soonest["batch_size"]
    assert found["best"]["lr"] == soonest["lr"]
    assert found["knee"]["batch_size"] in (32, 266)
    assert found["memory_limit"] == {
        "batch_size": 266, "fails_at": None, "why": "the whole training set in one batch runs",
    }  # fmt: skip
    assert found["critical_batch"] > 0
    assert found["target"] == 0.5


def row(size: int, **changes: Any) -> dict[str, Any]:
    found = {
        "batch_size": size, "samples_per_s": 1000.0, "step_ms": 1.0, "memory_mb": 500.0, "failed": None, "lr": 0.01,
        "steps_to_target": 90, "seconds_to_target": 1.5, "accuracy": 0.9, "regime": "stagnation", "trials": [],
    }  # fmt: skip
    return {**found, **changes}


def test_batch_size_in_words(manyhands: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {
        "model": "mlp", "data": "digits", "epochs": 3, "target": 0.85, "critical_batch": 210.4,
        "best": {"batch_size": 64, "lr": 0.01, "steps": 90, "seconds": 1.5},
        "knee": {"batch_size": 128, "samples_per_s": 2000.0},
        "memory_limit": {"batch_size": 1500, "fails_at": 1600, "why": "can't allocate memory"},
        "law": {"critical_batch": None},
        "table": [row(64), row(128, lr=None, steps_to_target=None, seconds_to_target=None), row(1600, failed="no")],
    }  # fmt: skip
    monkeypatch.setattr(batch_size, "tune", lambda *_: found)
    said = manyhands("tune", "batch-size", "mlp")
    assert said.code == 0, said.err
    assert "does not run" in said.out
    assert "throughput knee: batch 128, 2,000 samples/s" in said.out
    assert "memory: batch 1,500 runs, 1,600 does not: can't allocate memory" in said.out
    assert "critical batch: 210 from the noise in the gradients, – from the steps" in said.out
    assert "Batch 64 with rate 0.01 is soonest at 85.00 %: 90 steps, 1.50 s" in said.out
    found["best"] = None
    assert "No training reached 85.00 % within 3 epochs" in manyhands("tune", "batch-size", "mlp").out


def test_lr(manyhands: Any) -> None:
    said = manyhands(
        "tune", "lr", "mlp", "--plan", BOUND, *NARROW, "--set", "data.size=2000", "--batch-size", 64, "--json"
    )
    assert said.code == 0, said.err
    best = said.json["best"]["lr"]
    assert 1e-5 < best < 1
    assert best <= (said.json["blows_up"] or 10) / 10
    rates = [row["lr"] for row in said.json["table"]]
    assert rates == sorted(rates)
    assert all(row["smoothed"] > 0 for row in said.json["table"])


@pytest.mark.long
def test_workers(manyhands: Any) -> None:
    said = manyhands("tune", "workers", "mlp", "--plan", "plain,device=cpu", *NARROW, "--batch-size", 64)
    assert said.code == 0, said.err
    assert "--set loader.workers=" in said.out


@pytest.mark.long
def test_ranks(manyhands: Any) -> None:
    """Two ranks, whose own gradients say the noise."""
    said = manyhands(
        "tune", "batch-size", "mlp", "--plan", "data:2,device=cpu,precision=fp32,layout=contiguous,compile=off",
        *SMALL, "--sizes", "32,266", "--target", 0.4, "--budget", 2, "--epochs", 20, "--json",
    )  # fmt: skip
    assert said.code == 0, said.err
    assert all(row["steps_to_target"] for row in said.json["table"])
    assert said.json["critical_batch"] > 0


def test_train_with_the_batch_that_pays(manyhands: Any, tmp_path: Path) -> None:
    said = manyhands(
        "train", "mlp", "--plan", BOUND, "--batch-size", "auto", "--set", "data.size=600", *NARROW,
        "--epochs", 1, "--out", tmp_path / "run", "--json",
    )  # fmt: skip
    assert said.code == 0, said.err
    run = run_folder.load(tmp_path / "run")
    size = run.record["config"]["train"]["batch_size"]
    assert size in (32, 64)  # with 128 an epoch of 570 samples would have 5 steps
    assert run.record["config"]["train"]["batch_auto"] is False
    assert run.record["batch"]["batch_size"] == size
    assert run.record["batch"]["lr"] == run.record["config"]["optim"]["lr"]
    assert run.record["batch"]["why"] in (tmp_path / "run" / "log.txt").read_text()
    assert run.record["batch"]["why"] in said.err
    assert said.json["seconds"]["search"] > run.record["batch"]["seconds"]
    assert said.json["steps"] == -(-570 // size)


@pytest.mark.parametrize(("setting", "every"), [("log.noise=true", 1), ("log.noise_every=4", 4)])
def test_train_with_an_eye_on_the_noise(manyhands: Any, tmp_path: Path, setting: str, every: int) -> None:
    said = manyhands(
        "train", "mlp", "--plan", BOUND, "--batch-size", 64, "--set", setting, "--set", "train.accumulate=2",
        *NARROW, "--set", "data.size=1440", "--epochs", 2, "--out", tmp_path / "run", "--json",
    )  # fmt: skip
    assert said.code == 0, said.err
    records = [each for each in run_folder.load(tmp_path / "run").metrics() if "loss" in each]
    measured = [each["step"] for each in records if "noise_scale" in each]
    assert len(records) == 44
    assert set(measured) <= {step for step in range(1, 45) if (step - 1) % every == 0}
    assert len(measured) > 0.8 * 44 / every
    assert said.json["critical_batch"] > 0


def test_nothing_is_measured_unless_asked(manyhands: Any, tmp_path: Path) -> None:
    said = manyhands("train", "mlp", "--plan", BOUND, *SMALL, "--batch-size", 64, "--epochs", 1,
                     "--set", "train.accumulate=2", "--out", tmp_path / "run", "--json")  # fmt: skip
    assert said.json["critical_batch"] is None
    assert not any("noise_scale" in each for each in run_folder.load(tmp_path / "run").metrics())


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["tune", "batch-size", "mlp", "--target", "98"], "--target 98.0: an accuracy above 0, at most 1"),
        (["tune", "batch-size", "mlp", "--target", "high"], "--target high: a number is needed"),
        (["tune", "batch-size", "mlp", "--sizes", "64,many"], "--sizes 64,many: whole numbers"),
        (["tune", "batch-size", "mlp", "--sizes", "64,0"], "--sizes 64,0: sizes must be at least 1"),
        (["tune", "batch-size", "mlp", "--budget", "0"], "--budget 0: at least 1"),
        (["tune", "batch-size", "mlp", "--plot", "a.svg"], "--plot a.svg: the picture is a PNG"),
        (["tune", "batch-size", "mlp", "-o", "."], ". is a folder"),
        (["tune", "batch-size", "mlp", "--plan", "tensor:2"], "plan tensor:2 cannot be tuned yet"),
        (["tune", "batch-size", "mlp", "--plan", "data:2,consistency=async"], "cannot be tuned yet"),
        (["tune", "batch-size", "mlp", "--plan", "auto"], "plan auto is to be found first"),
        (
            ["tune", "batch-size", "mlp", "--sizes", "999", *SMALL],
            "batch size 999 is larger than the training set of 266",
        ),
        (["tune", "lr", "mlp", "--batch-size", "auto"], "train.batch_size=auto is for `manyhands train`"),
        (["tune", "workers", "mlp", "--plan", "serial"], "plan serial has no loader processes"),
        (["tune", "workers", "mlp", "--plan", "plain,workers=2"], "workers=2 is what is to be found"),
        (["train", "mlp", "--set", "log.noise=true"], "plan serial with log.noise: a step must have several"),
        (["train", "mlp", "--plan", "ddp:2", "--set", "log.noise_every=9"], "plan ddp:2 with log.noise"),
        (["train", "mlp", "--set", "log.noise_every=0"], "log.noise_every=0: it must be at least 1"),
        (["compare", "mlp", "--plan", "plain", "--batch-size", "auto"], "train.batch_size=auto is for"),
    ],
    ids=lambda each: " ".join(each)[:60] if isinstance(each, list) else "",
)
def test_bad_input(manyhands: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: list[str], told: str) -> None:  # fmt: skip  # noqa: E501
    monkeypatch.chdir(tmp_path)
    said = manyhands(*arguments, "--quiet")
    assert said.code == 2
    assert told in said.error
    assert [each for each in tmp_path.iterdir() if each.name != "home"] == []
