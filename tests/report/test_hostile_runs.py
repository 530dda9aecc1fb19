"""One bad folder among runs holds nobody up, is not followed elsewhere, and takes no other down."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

FIXTURE = Path(__file__).parents[1] / "fixtures" / "v1" / "finished"


def replaced(name: str, make: Callable[[Path], object]) -> Callable[[Path], object]:
    def change(run: Path) -> None:
        (run / name).unlink(missing_ok=True)
        make(run / name)

    return change


def large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(20_000_000_000)


def without_config(run: Path) -> None:
    record = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**record, "config": None}))


BAD = {
    **{f"{name} is a pipe": replaced(name, os.mkfifo) for name in ("run.json", "metrics.jsonl", "timeline.json")},
    "data.json is a pipe": replaced("data.json", os.mkfifo),
    "metrics of 20 GB": replaced("metrics.jsonl", large),
    "metrics elsewhere": replaced("metrics.jsonl", lambda path: path.symlink_to("/etc/passwd")),
    "a run.json elsewhere": replaced("run.json", lambda path: path.symlink_to("/dev/zero")),
    "no config": without_config,
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("bad", BAD)
def test_the_others_are_shown(manyhands: Any, tmp_path: Path, bad: str) -> None:
    folder = tmp_path / "runs"
    for name in ("good", "bad"):
        shutil.copytree(FIXTURE, folder / name)
    BAD[bad](folder / "bad")
    listed = manyhands("runs", folder, "--json")
    assert listed.code == 0, listed.err
    assert "good" in json.dumps(listed.json)
    for command in (
        ["report", folder, "-o", tmp_path / "a.html"],
        ["report", folder, "-o", tmp_path / "b.html", "--md", tmp_path / "a.md"],
    ):
        said = manyhands(*command)
        assert said.code == 0, said.err
    assert "No run finished" not in (tmp_path / "a.md").read_text()
    for command in (["show", folder / "bad"], ["export", folder / "bad", "--csv", tmp_path / "a.csv"]):
        said = manyhands(*command)
        assert said.code in (0, 2)
        assert "Traceback" not in said.err
        assert "root:" not in said.out + said.err


def test_links_are_not_followed_out_of_a_folder(manyhands: Any, tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "runs", tmp_path / "elsewhere"
    shutil.copytree(FIXTURE, folder / "good")
    shutil.copytree(FIXTURE, elsewhere / "secret")
    (folder / "linked").symlink_to(elsewhere / "secret")
    (folder / "round").symlink_to(folder)
    listed = manyhands("runs", folder, "--json")
    assert listed.code == 0
    assert "linked" not in json.dumps(listed.json)
    assert manyhands("show", folder / "linked").code == 0, "what is named is meant"
