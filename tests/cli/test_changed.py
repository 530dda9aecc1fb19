"""Code and data that have changed since a run began are not taken for its own."""

import os
from pathlib import Path
from typing import Any

import pytest

from manyhands.runs import run_folder

MINE = """
from torch import nn
from helper import activation

def build(classes, shape):
    inputs = shape[0] * shape[1] * shape[2]
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, 8), activation(), nn.Linear(8, classes))
"""
TABLE = "a,b,kind\n" + "".join(f"{row % 7},{row % 5},{'x' if row % 2 else 'y'}\n" for row in range(80))


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    (tmp_path / "helper.py").write_text("from torch.nn import ReLU as activation\n")
    (tmp_path / "mine.py").write_text(MINE)
    return tmp_path / "mine.py"


def train(manyhands: Any, model: object, data: object, out: Path, *more: object) -> Any:
    limits = ("--batch-size", 16, "--plan", "serial,precision=fp32", "--epochs", 2, "--json")
    return manyhands("train", model, "--data", data, "--out", out, *limits, *more)


def test_code_that_a_model_imports(manyhands: Any, mine: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    limits = ("--set", "data.size=60", "--set", "data.test_size=20")
    assert train(manyhands, f"{mine}:build", "digits", run, *limits).code == 0
    run_folder.load(run).update(status="interrupted")
    image = tmp_path / "file.csv"
    mine.with_name("helper.py").write_text("from torch.nn import Tanh as activation\n")
    for command in (
        ("predict", run, image),
        ("export", run, "--torch", tmp_path / "m.pt2"),
        ("train", "--resume", run),
    ):
        said = manyhands(*command)
        assert said.code == 2
        assert "has changed since the run began" in said.error
    said = manyhands("train", "--resume", run, "--changed-code", "--json")
    assert said.code == 0, said.err
    assert "--changed-code allows" in said.err


def test_data_that_go_on_otherwise(manyhands: Any, tmp_path: Path) -> None:
    run, table = tmp_path / "run", tmp_path / "table.csv"
    table.write_text(TABLE)
    said = train(manyhands, "mlp", table, run, "--set", "data.target=kind")
    assert said.code == 0, said.err
    run_folder.load(run).update(status="interrupted")
    times = table.stat()
    table.write_text(TABLE.replace("0,0,y", "0,0,x", 1))  # one label: as many bytes
    os.utime(table, ns=(times.st_atime_ns, times.st_mtime_ns))
    said = manyhands("train", "--resume", run)
    assert said.code == 2
    assert "have changed since the run began" in said.error


def test_runs_of_before_say_what_is_not_checked(manyhands: Any, mine: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert train(manyhands, f"{mine}:build", "digits", run, "--set", "data.size=60").code == 0
    record = dict(run_folder.load(run).record)
    for key in ("source_sha256", "data_sha256"):
        del record[key]
    run_folder.Run(run, record).update(status="interrupted")
    said = manyhands("train", "--resume", run, "--json")
    assert said.code == 0, said.err
    assert said.err.count("was not checked") == 2
