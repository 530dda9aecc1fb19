"""The mean of checkpoints as a file, beside the last of them; what is no model is refused, and nothing is written."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from manyhands.api import fit
from manyhands.data.load import load
from manyhands.data.schema import DataOptions
from manyhands.engine.loop import checkpoint, checkpoint_folder
from manyhands.errors import ModelError
from manyhands.inference.load import load_run
from manyhands.inference.weight_average import mean_of, renew_statistics
from manyhands.runs import run_folder

PLAN = "serial,device=cpu,precision=fp32,layout=contiguous,compile=off"
SETTINGS = {"model.width": 0.25, "data.size": 1000, "data.test_size": 500, "optim.lr": 0.01}
BASE: dict[str, Any] = {"plan": PLAN, "batch_size": 100, "epochs": 2}
BASE |= {key.replace(".", "__"): value for key, value in SETTINGS.items()}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A run with five checkpoints, one from another start, and two that go on from the first."""
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("MANYHANDS_HOME", str(folder / "home"))
        fit("mlp", out=folder / "a", **BASE, checkpoint__every_steps=4, checkpoint__keep=9, train__ema=0.5)
        fit("mlp", out=folder / "b", **BASE, seed=1)
        for number in (3, 4):
            on = {"model__init_from": str(folder / "a"), "seed": number, "epochs": 1, "checkpoint__keep": 1}
            fit("mlp", out=folder / f"on{number}", **{**BASE, **on})
        yield folder


def test_the_last_checkpoints(manyhands: Any, runs: Path, tmp_path: Path) -> None:
    made = tmp_path / "mean.safetensors"
    said = manyhands("average", runs / "a", "--last", 3, "-o", made, "--json")
    assert said.code == 0, said.err
    names = [Path(each).name for each in said.json["checkpoints"]]
    assert names == [each.name for each in checkpoint_folder.listing(runs / "a" / "checkpoints")][-3:]
    every = [checkpoint.load_model(runs / "a" / "checkpoints" / name) for name in names]
    for name, found in load_file(made).items():
        assert torch.allclose(found, sum(each[name] for each in every) / 3, rtol=1e-6), name
    result = run_folder.load(runs / "a").result or {}
    assert said.json["last_test_accuracy"] == pytest.approx(result["test_accuracy"], abs=1e-9)
    assert [row["weights"] for row in said.json["rows"]] == [f"a/{names[-1]}", "mean of 3"]
    assert said.json["rows"][1]["test_accuracy"] == said.json["test_accuracy"]
    assert 0.5 < said.json["test_accuracy"] <= 1

    on = manyhands("train", "mlp", "--init-from", made, "--plan", PLAN, "--batch-size", 100, "--epochs", 1,
                   *(word for each in SETTINGS.items() for word in ("--set", "{}={}".format(*each))),
                   "--out", tmp_path / "on")  # fmt: skip
    assert on.code == 0, on.err
    assert f"{len(every[0])} tensors loaded" in on.err


def test_all_of_one_run_without_a_number(manyhands: Any, runs: Path, tmp_path: Path) -> None:
    said = manyhands("average", runs / "a", "-o", tmp_path / "m")
    assert said.code == 0, said.err
    count = len(checkpoint_folder.listing(runs / "a" / "checkpoints"))
    assert f"mean of {count}" in said.out
    assert f"--init-from {tmp_path / 'm'}" in said.out
    assert {each.name for each in tmp_path.iterdir()} == {"m", "home"}


def test_several_runs_from_one_start(manyhands: Any, runs: Path, tmp_path: Path) -> None:
    said = manyhands("average", runs / "on3", runs / "on4", "-o", tmp_path / "m", "--json")
    assert said.code == 0, said.err
    assert [row["weights"].split("/")[0] for row in said.json["rows"]] == ["on3", "on4", "mean of 2"]
    ends = [checkpoint.load_model(checkpoint_folder.listing(runs / run / "checkpoints")[-1]) for run in ("on3", "on4")]
    for name, found in load_file(tmp_path / "m").items():
        assert torch.allclose(found, (ends[0][name] + ends[1][name]) / 2, rtol=1e-6)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["a", "b"], "began with other weights (train.seed=0 and 1): a mean of their weights is no model"),
        (["a", "on3"], "are not of one model on the same data"),
        (["a", "a"], "is named twice"),
        (["a", "--last", "99"], "has 6 intact checkpoints, 99 are wanted: give a smaller --last"),
        (["a", "--last", "0"], "--last 0: a whole number, at least 1"),
        (["a", "--last", "1"], "has one checkpoint, a mean needs two or more"),
        (["nothing"], "nothing is not a run"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_one_line(
    manyhands: Any, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], told: str
) -> None:
    monkeypatch.chdir(runs)
    said = manyhands("average", *words, "-o", tmp_path / "out" / "m", "-q")
    assert said.code == 2
    assert told in said.error
    assert not (tmp_path / "out").exists()


def test_a_damaged_checkpoint_is_left_out(manyhands: Any, runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "a", tmp_path / "a")
    newest = checkpoint_folder.listing(tmp_path / "a" / "checkpoints")[-1]
    (newest / "model.safetensors").write_bytes(b"no")
    said = manyhands("average", tmp_path / "a", "--last", 2, "-o", tmp_path / "m", "--json")
    assert said.code == 0, said.err
    assert newest.name not in str(said.json["checkpoints"])
    assert f"{newest} is damaged: left out" in said.err


def test_data_that_have_changed(manyhands: Any, runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "a", tmp_path / "a")
    schema = json.loads((tmp_path / "a" / "data.json").read_text())
    (tmp_path / "a" / "data.json").write_text(json.dumps({**schema, "classes": schema["classes"][::-1]}))
    said = manyhands("average", tmp_path / "a", "-o", tmp_path / "m", "-q")
    assert said.code == 2
    assert "the data digits are others than run" in said.error
    assert not (tmp_path / "m").exists()


def test_means_are_of_numbers_and_counts_stay_counts() -> None:
    tensors = [{"w": torch.tensor([float(n)]), "n": torch.tensor(n)} for n in (1, 2, 6)]
    found = mean_of(iter(tensors))
    assert found["w"].tolist() == [3.0]
    assert found["w"].dtype == torch.float32
    assert found["n"].tolist() == 6
    with pytest.raises(ModelError, match="of different models"):
        mean_of(iter([{"w": torch.zeros(2)}, {"w": torch.zeros(3)}]))


def test_statistics_are_taken_anew() -> None:
    dataset = load("synthetic:1x4x4,2", DataOptions(size=600, validation=0))
    model = nn.Sequential(nn.BatchNorm2d(1), nn.Flatten(), nn.Linear(16, 2))
    norm = model[0]
    norm.running_mean += 7
    renew_statistics(model, dataset)
    rows = torch.from_numpy(dataset.train.inputs[dataset.train.index]).double()
    wanted = (rows.mean() - dataset.schema.mean[0]) / dataset.schema.std[0]
    assert norm.running_mean.item() == pytest.approx(float(wanted), abs=0.02)
    assert norm.momentum == 0.1


def test_predict_and_export_take_the_averaged_weights(manyhands: Any, runs: Path, tmp_path: Path) -> None:
    from PIL import Image

    Image.new("L", (8, 8), 128).save(tmp_path / "a.png")
    both = [
        manyhands("predict", runs / "a", tmp_path / "a.png", *words, "--json").json["predictions"][0]["probability"]
        for words in ([], ["--averaged"])
    ]
    assert both[0] != both[1]
    newest = checkpoint_folder.listing(runs / "a" / "checkpoints")[-1]
    wanted = checkpoint.load_model(newest, checkpoint_folder.AVERAGED)
    assert all(torch.equal(each, wanted[name]) for name, each in load_run(runs / "a", True)[0].state_dict().items())
    said = manyhands("export", runs / "a", "--averaged", "--torch", tmp_path / "m.pt2", "--json")
    assert said.code == 0, said.err
    program = torch.export.load(tmp_path / "m.pt2")
    assert any(torch.equal(each, wanted[name]) for name, each in program.state_dict.items() if name in wanted)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["predict", "b", "x.png", "--averaged"], "has no averaged weights: train with --set train.ema=0.99"),
        (["export", "b", "--torch", "m.pt2", "--averaged"], "has no averaged weights"),
        (["export", "a", "--csv", "m.csv", "--averaged"], "--averaged is for the model"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_weights_that_are_not_there(
    manyhands: Any, runs: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], told: str
) -> None:
    monkeypatch.chdir(runs)
    said = manyhands(*words, "-q")
    assert said.code == 2
    assert told in said.error
    assert not list(runs.glob("m.*"))
