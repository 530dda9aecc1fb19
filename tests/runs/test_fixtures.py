"""What version 1 has written is read by this one: run folders, checkpoints of each strategy, a study, a plan file."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from manyhands.engine.loop.checkpoint import load_model
from manyhands.engine.loop.checkpoint_folder import listing, newest_whole
from manyhands.plan.spec import parse
from manyhands.runs import run_folder

V1 = Path(__file__).parents[1] / "fixtures" / "v1"
ENDS: dict[str, dict[str, float]] = json.loads((V1 / "undisturbed.json").read_text())
# What they compute hangs on the clock: which worker comes first.
BY_CLOCK = ("server", "gossip", "stale")
# A strategy each that keeps its state in its own way; the others take longer and go to test-long.
SHORT = ("serial", "data-shm", "tensor")
RESUMED = [pytest.param(name, marks=() if name in SHORT else pytest.mark.long) for name in ENDS]


def test_they_are_listed(manyhands: Any) -> None:
    said = manyhands("runs", V1, "--json")
    assert said.code == 0, said.err
    found, damaged = run_folder.find_all(V1)
    assert damaged == []
    assert len(found) == len(ENDS) + 5  # the finished one, two of a comparison, two of a study


def test_a_report_shows_all(manyhands: Any, tmp_path: Path) -> None:
    said = manyhands("report", V1, V1 / "study", V1 / "compare", "-o", tmp_path / "page.html", "--json")
    assert said.code == 0, said.err
    assert said.json["skipped"] == []


def test_the_plan_file_is_read() -> None:
    assert parse(str(V1 / "plan.toml")).world == 4


@pytest.mark.parametrize("name", ENDS)
def test_its_checkpoint_is_whole(name: str) -> None:
    path = newest_whole(V1 / name / "checkpoints")
    assert path is not None
    assert path == listing(V1 / name / "checkpoints")[-1]
    assert load_model(path)


def test_a_finished_run_predicts(manyhands: Any, tmp_path: Path) -> None:
    from PIL import Image

    Image.new("L", (6, 6)).save(tmp_path / "a.png")
    said = manyhands("predict", V1 / "finished", tmp_path / "a.png", "--json")
    assert said.code == 0, said.err
    assert 0.25 <= said.json["predictions"][0]["probability"] <= 1


@pytest.mark.parametrize("name", RESUMED)
def test_a_killed_run_goes_on(manyhands: Any, tmp_path: Path, name: str) -> None:
    folder = Path(shutil.copytree(V1 / name, tmp_path / name))
    said = manyhands("train", "--resume", folder, "--json")
    assert said.code == 0, said.err
    assert "resuming from step-" in (folder / "log.txt").read_text()
    end = ENDS[name]
    assert said.json["steps"] == end["steps"]
    if name not in BY_CLOCK:
        assert said.json["final_loss"] == pytest.approx(end["final_loss"], rel=1e-5)
    # Version 1 scored the last weights, be they the best or not.
    if name not in BY_CLOCK and said.json["weights_step"] == end["steps"]:
        assert said.json["test_loss"] == pytest.approx(end["test_loss"], rel=1e-5)
