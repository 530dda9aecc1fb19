"""A study: what this machine lacks is left out, a failing cell stops nothing, and the tables lie side by side."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from manyhands.cli.study import show
from manyhands.machine.detect import detect
from manyhands.runs import run_folder
from manyhands.studies import recipe, runner
from manyhands.studies import recipe as study

Write = Callable[..., Path]

PLAN = "serial,device=cpu,precision=fp32,layout=contiguous,compile=off"
TINY = f"""
title = "Tiny"
source = "a made-up source"
hardware = "a made-up machine"
differs = "in everything"
plan = "{PLAN}"
repeats = 2
columns = ["slowest time / this", "time / base", "points over base"]
whole = 1000
[base]
model.name = "mlp"
data.name = "synthetic:4,2"
train = {{ batch_size = 50, epochs = 1 }}
[small]
data.size = 200
[full]
data.size = 400
"""
LR = """
[axes]
optim.lr = [0.1, 0.01]
[[published]]
label = "lr 0.1"
seconds = 7
[[published]]
label = "lr 9"
seconds = 8
"""
OPTUNA = """
[axes]
optim.lr = { low = 0.001, high = 1.0, log = true }
optim.name = ["sgd", "adam"]
model.depth = { low = 1, high = 3 }
"""


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a recipe: the tiny one and what is added to it."""

    def make(more: str = LR, old: str = "", new: str = "") -> Path:
        path = tmp_path / "tiny.toml"
        path.write_text(TINY.replace(old, new, 1) + more)
        return path

    return make


def test_a_study(
    manyhands: Any, write: Write, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = manyhands("study", write(), "--out", tmp_path / "s", "--json")
    assert said.code == 0, said.err
    found = said.json
    assert json.loads((tmp_path / "s" / "study.json").read_text()) == {k: v for k, v in found.items() if k != "out"}
    assert [(row["label"], row["cell"], row["n"]) for row in found["rows"]] == [
        ("lr 0.1", {"optim.lr": 0.1}, 2),
        ("lr 0.01", {"optim.lr": 0.01}, 2),
    ]
    assert found["rows"][0]["extra"]["points over base"] == 0
    assert min(row["extra"]["slowest time / this"] for row in found["rows"]) == 1
    assert found["used"] == "200 training samples of the source's 1,000"
    assert found["hardware"]["published"] == "a made-up machine"
    runs = run_folder.find(tmp_path / "s")
    assert [(run.name, run.record["case"], run.record["repeat"]) for run in runs] == [  # interleaved
        ("0-lr-0.1-r0", "lr 0.1", 0),
        ("1-lr-0.01-r0", "lr 0.01", 0),
        ("0-lr-0.1-r1", "lr 0.1", 1),
        ("1-lr-0.01-r1", "lr 0.01", 1),
    ]
    assert [run.record["config"]["train"]["seed"] for run in runs] == [0, 0, 1, 1]
    assert [each for row in found["rows"] for each in row["runs"]] == [
        "0-lr-0.1-r0", "0-lr-0.1-r1", "1-lr-0.01-r0", "1-lr-0.01-r1"
    ]  # fmt: skip
    monkeypatch.setenv("COLUMNS", "200")
    show(found)
    shown = " ".join(capfd.readouterr().out.split())
    for told in ("published", "seconds 7", "not here", "a made-up machine", "finding: ", "differs: in everything"):
        assert told in shown
    # Once more, and nothing is trained again.
    before = {run.name: run.record["updated"] for run in runs}
    assert manyhands("study", write(), "--out", tmp_path / "s", "--json").json["rows"] == found["rows"]
    assert {run.name: run.record["updated"] for run in run_folder.find(tmp_path / "s")} == before


def test_another_order_in_the_same_folder(manyhands: Any, write: Write, tmp_path: Path) -> None:
    assert manyhands("study", write(), "--out", tmp_path / "s", "--smoke", "-q").code == 0
    said = manyhands("study", write(), "--out", tmp_path / "s", "--full", "-q")
    assert said.code == 2
    assert "holds another sweep (its full, smoke differs): choose another --out" in said.error
    (tmp_path / "s" / "sweep.json").write_text("{")
    assert "sweep.json is damaged" in manyhands("study", write(), "--out", tmp_path / "s", "-q").error


def test_what_is_not_here_is_left_out(manyhands: Any, write: Write, tmp_path: Path) -> None:
    path = write('[axes]\ncpu.affinity = ["auto", "900,901"]\n')
    said = manyhands("study", path, "--out", tmp_path / "s", "--repeats", 1, "--json")
    assert [row["label"] for row in said.json["rows"]] == ["cores auto"]
    (left,) = said.json["left_out"]
    assert left["label"] == "cores 900,901"
    assert "cores [900, 901] are not here" in left["reason"]
    nothing = write('[axes]\ncpu.affinity = ["900"]\n')
    said = manyhands("study", nothing, "--out", tmp_path / "n", "-q")
    assert said.code == 2
    assert "nothing of it can run here; cpu.affinity=900" in said.error
    assert not (tmp_path / "n").exists()


def test_a_failing_cell_stops_nothing(manyhands: Any, write: Write, tmp_path: Path) -> None:
    path = write("[axes]\ntrain.batch_size = [50, 5000]\n")
    said = manyhands("study", path, "--out", tmp_path / "s", "--json")
    assert said.code == 1
    good, bad = said.json["rows"]
    assert (good["n"], good["failed"]) == (2, None)
    assert (bad["n"], bad["samples_per_s"]) == (0, None)
    assert "batch size 5000 is larger than the training set" in bad["failed"]


def test_where_all_fail(manyhands: Any, write: Write, tmp_path: Path) -> None:
    said = manyhands("study", write(old='"synthetic:4,2"', new='"tweets"'), "--out", tmp_path / "s", "--quiet")
    assert said.code == 2
    assert "the files of tweets are not here" in said.error
    assert "manyhands data get tweets" in said.error
    assert not [each for each in tmp_path.glob("s/*") if each.is_dir()]


def test_ranks_without_cores_of_their_own_are_left_out(manyhands: Any, write: Write) -> None:
    cores = len(detect().cores)
    axes = f'[axes]\nplan = ["{PLAN}", "data:{cores + 1},device=cpu"]\n'
    path = write(axes, "repeats = 2", "repeats = 2\ncrowds = false")
    told = manyhands("study", path, "--dry-run", "--json").json
    assert [cell["label"] for cell in told["cells"][:1]] == [PLAN]
    (left,) = told["left_out"]
    assert left["reason"].startswith(f"{cores + 1} ranks need {cores + 1} cores, this machine has {cores}")
    assert not manyhands("study", write(axes), "--dry-run", "--json").json["left_out"]
    error = manyhands("study", write(axes, "repeats = 2", "repeats = 2\ncrowds = 3"), "--dry-run").error
    assert error == "recipe tiny: crowds=3: true or false is needed"


@pytest.mark.long
def test_a_dry_run(manyhands: Any, write: Write, tmp_path: Path) -> None:
    said = manyhands("study", write(), "--dry-run", "--json")
    assert said.code == 0, said.err
    assert [(cell["label"], cell["repeat"]) for cell in said.json["cells"]] == [
        ("lr 0.1", 0), ("lr 0.01", 0), ("lr 0.1", 1), ("lr 0.01", 1)
    ]  # fmt: skip
    assert said.json["estimated_seconds"] == pytest.approx(sum(cell["seconds"] for cell in said.json["cells"]))
    assert "a training of 12 steps of lr 0.1" in said.json["estimated_from"]
    assert not list((tmp_path / "home").glob("runs/*"))
    assert manyhands("study", write(), "-q").code == 0
    again = manyhands("study", write(), "--dry-run", "--json").json
    assert again["estimated_from"] == "earlier runs like these"
    assert again["estimated_seconds"] > 0


@pytest.mark.long
def test_optuna(manyhands: Any, write: Write, tmp_path: Path) -> None:
    search = 'design = "optuna"\ntrials = 3\nmeasure = "test_accuracy"\nrepeats = 1'
    path = write(OPTUNA, old="repeats = 2", new=search)
    said = manyhands("study", path, "--out", tmp_path / "a", "--json")
    assert said.code == 0, said.err
    cells = [row["cell"] for row in said.json["rows"]]
    assert len({json.dumps(cell) for cell in cells}) == 3
    assert all(0.001 <= cell["optim.lr"] <= 1 and cell["model.depth"] in (1, 2, 3) for cell in cells)
    assert manyhands("study", path, "--dry-run", "--json").json["cells"]


def test_bad_options(manyhands: Any, write: Write) -> None:
    assert "unknown study 'afinity': did you mean 'affinity'? Allowed: " in manyhands("study", "afinity").error
    assert "repeats=0: a whole number" in manyhands("study", write(), "--repeats", 0).error
    varied = manyhands("study", write(), "--set", "optim.lr=3")
    assert varied.code == 2
    assert "--set optim.lr: study tiny varies it" in varied.error
    assert manyhands("study", write(), "--set", "train.epoch=3").code == 2
    assert {each["name"] for each in manyhands("study", "--json").json["studies"]} == set(recipe.names())
    assert "affinity" in manyhands("study").out


@pytest.mark.parametrize("name", recipe.names())
def test_a_shipped_study_runs(manyhands: Any, real_folder: Any, tmp_path: Path, name: str) -> None:
    """One cell of each, two steps, on the real data."""
    found = recipe.read(name)
    data = found.cases(False, found.config(False, {}))[0].config.data.name
    if not data.startswith("synthetic"):
        real_folder(data)
    said = manyhands("study", name, "--smoke", "--out", tmp_path / "s", "--json")
    assert said.code == 0, said.err
    (row,) = said.json["rows"]
    assert row["n"] == 1
    assert (row["search_seconds" if found.by == "search" else "samples_per_s"])["mean"] > 0
    assert said.json["finding"]


def test_the_command_names_the_file_of_a_recipe(tmp_path: Path) -> None:
    path = tmp_path / "my own.toml"
    path.write_text("[axes]\ntrain.epochs = [1, 2]")
    made = study.Order(recipe.read(str(path)), full=True, smoke=True)
    assert made.command == f"manyhands study '{path}' --full --smoke"
    assert "file" not in made.to_json()["recipe"]
    assert study.Order(recipe.read("epochs")).command == "manyhands study epochs"


def test_a_search_that_has_ended_is_not_made_again(manyhands: Any, tmp_path: Path) -> None:
    first, second = (
        manyhands("study", "search-time", "--smoke", "--out", tmp_path / "s", "--json").json for _ in range(2)
    )
    assert [row["search_seconds"] for row in first["rows"]] == [row["search_seconds"] for row in second["rows"]]
    (line,) = (tmp_path / "s" / "searches.jsonl").read_text().splitlines()
    assert json.loads(line)["repeat"] == 0


@pytest.mark.parametrize("text", ["[1]", "{"])
def test_a_damaged_order(manyhands: Any, write: Write, tmp_path: Path, text: str) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "sweep.json").write_text(text)
    said = manyhands("study", write(), "--out", tmp_path / "s")
    assert said.code == 2
    assert "is damaged: choose another --out" in said.err


def test_data_that_is_not_known_leaves_nothing(manyhands: Any, write: Write, tmp_path: Path) -> None:
    said = manyhands("study", write(), "--set", "data.name=nix", "--out", tmp_path / "s")
    assert said.code == 2
    assert "nix" in said.err.splitlines()[-1]
    assert not (tmp_path / "s").exists()
    said = manyhands("study", write(), "--set", "data.name=nix", "--dry-run")
    assert said.code == 2
    assert "nix" in said.err.splitlines()[-1]


def test_a_cell_whose_process_cannot_say_so_is_interrupted(
    manyhands: Any, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: str) -> tuple[int, str]:
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "in_fresh_process", interrupted)
    said = manyhands("study", write(), "--out", tmp_path / "s")
    assert said.code == 130
    assert "the same command with the same --out goes on" in said.err
    (run,) = run_folder.find(tmp_path / "s")
    assert run.status == "interrupted"
