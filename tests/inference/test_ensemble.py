"""Models asked together: both ways are what they say, beside each alone; what cannot be asked together is refused."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from manyhands.api import fit
from manyhands.data.load import load
from manyhands.data.normalize import Normalize
from manyhands.data.schema import DataOptions
from manyhands.inference.ensemble import voted
from manyhands.inference.load import load_run
from manyhands.runs import run_folder

PLAN = "serial,device=cpu,precision=fp32,layout=contiguous,compile=off"
DATA = DataOptions(size=1000, test_size=500)
BASE: dict[str, Any] = {"plan": PLAN, "batch_size": 100, "epochs": 1, "model__width": 0.25, "optim__lr": 0.01}
BASE |= {"data__size": DATA.size, "data__test_size": DATA.test_size}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Three models of digits, of two kinds; one that saw fewer test samples, and one of other classes."""
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("MANYHANDS_HOME", str(folder / "home"))
        for seed in (0, 1):
            fit("mlp", out=folder / f"mlp{seed}", **BASE, seed=seed)
        fit("convnet", out=folder / "convnet", **BASE)
        fit("mlp", out=folder / "few", **{**BASE, "data__test_size": 50})
        fit("mlp", "synthetic:1x8x8,3", out=folder / "other", **BASE)
        yield folder


def by_hand(runs: Path, names: list[str]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The probabilities of each model, and the labels."""
    dataset = load("digits", DATA)
    rows = torch.from_numpy(dataset.test.inputs[dataset.test.index])
    inputs = Normalize(dataset.schema, contiguous=True)(rows)
    with torch.no_grad():
        told = [torch.softmax(load_run(runs / name)[0](inputs), 1).double().numpy() for name in names]
    return np.stack(told), dataset.test.labels[dataset.test.index]


def test_together(manyhands: Any, runs: Path) -> None:
    names = ["mlp0", "mlp1", "convnet"]
    said = manyhands("ensemble", *(runs / name for name in names), "--json")
    assert said.code == 0, said.err
    told, labels = by_hand(runs, names)
    assert said.json["samples"] == len(labels)
    for row, name, own in zip(said.json["rows"], names, told, strict=True):
        assert Path(row["run"]).name == name
        assert row["test_accuracy"] == pytest.approx((own.argmax(1) == labels).mean())
        assert row["test_accuracy"] == pytest.approx((run_folder.load(runs / name).result or {})["test_accuracy"])
    assert [row["model"] for row in said.json["rows"]] == ["mlp", "mlp", "convnet"]
    mean = (told.mean(0).argmax(1) == labels).mean()
    counts = np.stack([(told.argmax(2) == label).sum(0) for label in range(10)], axis=1)
    winners = [
        max(range(10), key=lambda label: (count[label], chances[label]))
        for count, chances in zip(counts, told.mean(0), strict=True)
    ]
    assert said.json["mean_accuracy"] == said.json["test_accuracy"] == pytest.approx(mean)
    assert said.json["vote_accuracy"] == pytest.approx((np.array(winners) == labels).mean())
    every = [row["test_accuracy"] for row in said.json["rows"]]
    assert said.json["member_accuracy"] == {
        "mean": pytest.approx(np.mean(every)),
        "std": pytest.approx(np.std(every, ddof=1)),
    }


def test_by_vote_and_as_a_table(manyhands: Any, runs: Path) -> None:
    pair = (runs / "mlp0", runs / "convnet")
    said = manyhands("ensemble", *pair, "--by", "vote", "--json").json
    assert said["test_accuracy"] == said["vote_accuracy"]
    shown = manyhands("ensemble", *pair, "-q")
    assert shown.err == ""
    for words in ("mlp0", "convnet", "on average", "by vote", "by the mean of probabilities"):
        assert words in shown.out


def test_equal_votes_go_by_probability() -> None:
    votes = torch.tensor([[2, 2, 0], [0, 1, 3], [0, 0, 4]])
    mean = torch.tensor([[0.3, 0.4, 0.3], [0.1, 0.8, 0.1], [0.0, 0.9, 0.1]])
    assert voted(votes, mean).argmax(1).tolist() == [1, 2, 2]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["mlp0"], "an ensemble of 1: name two runs or more"),
        (["mlp0", "mlp1", "mlp0"], "run mlp0 is named twice"),
        (["mlp0", "other"], "run other tells 3 classes ("),
        (["mlp0", "few"], "run few has 50 test samples, run mlp0 has "),
        (["mlp0", "mlp1", "--by", "votes"], "--by votes: did you mean 'vote'?"),
        (["mlp0", "nothing"], "nothing is not a run"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_one_line(manyhands: Any, runs: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], told: str) -> None:
    monkeypatch.chdir(runs)
    said = manyhands("ensemble", *words, "-q")
    assert said.code == 2
    assert told in said.error
    assert said.out == ""
