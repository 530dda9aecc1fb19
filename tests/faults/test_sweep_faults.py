"""A sweep that is killed and started again: every cell once, none trained twice, all as if nothing had happened."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from manyhands.runs import run_folder

RECIPE = """
plan = "serial,device=cpu,precision=fp32,layout=contiguous,compile=off"
repeats = 2
{design}
[axes]
optim.lr = {rates}
[base]
model.name = "mlp"
data = {{ name = "synthetic:1x10x10,4", size = 4000 }}
train = {{ batch_size = 50, epochs = 2 }}
"""


OPTUNA = 'design = "optuna"\ntrials = 3'


def command(recipe: Path, out: Path) -> list[str]:
    return [sys.executable, "-m", "manyhands", "study", str(recipe), "--out", str(out), "--json", "--quiet"]


def learnt(out: Path) -> dict[str, list[object]]:
    """What every cell came to: its losses to the bit, and its accuracy."""
    found = {}
    for run in run_folder.find(out):
        assert run.status == "finished"
        assert run.result is not None
        curve = [(each["step"], each.get("loss", each.get("val_loss"))) for each in run.metrics()]
        found[run.name] = [curve, run.result["test_accuracy"], run.record["config"], run.record["case"]]
    return found


@pytest.mark.long
@pytest.mark.parametrize(
    ("design", "rates"),
    [
        pytest.param("", "[0.1, 0.01]", id="grid"),
        pytest.param(OPTUNA, "{ low = 0.001, high = 0.1, log = true }", id="optuna"),
    ],
)
def test_kill_in_the_middle(tmp_path: Path, design: str, rates: str) -> None:
    recipe = tmp_path / "mine.toml"
    recipe.write_text(RECIPE.format(design=design, rates=rates))
    whole = subprocess.run(command(recipe, tmp_path / "whole"), check=True, capture_output=True, text=True)
    process = subprocess.Popen(command(recipe, tmp_path / "cut"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while True:  # until one cell has finished and another has done some steps
        runs = run_folder.find(tmp_path / "cut")
        half = [run for run in runs if run.status == "running" and next(run.metrics(), None)]
        if half and any(run.status == "finished" for run in runs):
            break
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    children = psutil.Process(process.pid).children(recursive=True)
    done = {run.name: run.record["updated"] for run in runs if run.status == "finished"}
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not psutil.wait_procs(children, timeout=5)[1], "the training outlives the sweep"
    again = subprocess.run(command(recipe, tmp_path / "cut"), check=True, capture_output=True, text=True)
    assert learnt(tmp_path / "cut") == learnt(tmp_path / "whole")
    kept = {run.name: run.record["updated"] for run in run_folder.find(tmp_path / "cut") if run.name in done}
    assert kept == done
    rows = [json.loads(each.stdout)["rows"] for each in (whole, again)]
    assert [(row["label"], row["n"], row["test_accuracy"]) for row in rows[0]] == [
        (row["label"], row["n"], row["test_accuracy"]) for row in rows[1]
    ]


def test_two_at_once_in_one_folder(tmp_path: Path) -> None:
    recipe = tmp_path / "mine.toml"
    recipe.write_text(RECIPE.format(design="", rates="[0.1]"))
    first = subprocess.Popen(command(recipe, tmp_path / "s"), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("s/*/run.json")):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    second = subprocess.run(command(recipe, tmp_path / "s"), check=False, capture_output=True, text=True)
    assert second.returncode == 2
    assert "another process is at work in" in json.loads(second.stdout)["error"]
    first.communicate(timeout=120)
    assert first.returncode == 0
