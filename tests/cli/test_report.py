"""`manyhands report`: the files that it writes, and what it says of those that it cannot read."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from manyhands.runs import run_folder

MakeRun = Callable[..., run_folder.Run]


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A folder with two runs, one of which failed, and something that is none."""
    parent = tmp_path / "runs"
    for name, speed in (("a", 1000.0), ("b", None)):
        folder = parent / name
        folder.mkdir(parents=True)
        run = run_folder.create(
            folder, {"plan_words": name, "config": {"model": {"name": "mlp"}, "data": {"name": "digits"}}}
        )
        (folder / "metrics.jsonl").write_text(
            '{"step": 1, "loss": 2.0, "ms": 5.0}\n{"step": 2, "loss": 1.0, "ms": 5.0}\n'
        )
        if speed:
            run.update(status="finished", result={"samples_per_s": speed, "seconds": {"train": 3.0, "total": 4.0}})
        else:
            run.update(status="failed", error="out of memory")
    (parent / "torn").mkdir()
    (parent / "torn" / "run.json").write_text("{")
    return parent


def test_all_that_it_writes(manyhands: Any, runs: Path, tmp_path: Path) -> None:
    page, md, csv, figures = (tmp_path / "new" / name for name in ("page.html", "r.md", "r.csv", "figures"))
    said = manyhands("report", runs, "-o", page, "--md", md, "--csv", csv, "--figures", figures, "--json")
    assert said.code == 0, said.err
    assert said.json["runs"] == 2
    assert said.json["finding"].startswith("Only a finished, with 1,000 samples a second")
    assert [said.json[key] for key in ("page", "md", "csv")] == [str(page), str(md), str(csv)]
    ((skipped),) = said.json["skipped"]
    assert skipped["folder"] == str(runs / "torn")
    assert "Expecting property name" in skipped["reason"]
    assert f"warning: left out {runs / 'torn'}" in said.err
    assert said.json["finding"] in page.read_text()
    assert said.json["finding"] in md.read_text()
    assert f"manyhands report {runs} -o {page} --md {md} --csv {csv} --figures {figures}" in md.read_text()
    assert len(csv.read_text().splitlines()) == 3
    drawn = [Path(path) for path in said.json["figures"]]
    assert [path.name for path in drawn] == [
        f"{name}.{kind}" for name in ("speed", "loss-by-second", "loss-by-step") for kind in ("png", "svg")
    ]
    for path in drawn:
        assert path.read_bytes().startswith(b"\x89PNG") if path.suffix == ".png" else ElementTree.parse(path)
    assert sorted(path.name for path in page.parent.rglob("*")) == sorted(
        ["page.html", "r.md", "r.csv", "figures", *(path.name for path in drawn)]
    )


def test_a_page_alone(manyhands: Any, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = manyhands("report", runs / "a", "--quiet")
    assert said.code == 0
    assert said.out.splitlines() == ["a trained 1,000 samples a second.", "page: report.html"]
    assert said.err == ""
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")


def test_a_run_that_is_named_twice_counts_once(manyhands: Any, runs: Path, tmp_path: Path) -> None:
    said = manyhands("report", runs, runs / "a", runs, "-o", tmp_path / "r.html", "--json")
    assert (said.json["runs"], said.json["md"], said.json["csv"], said.json["figures"]) == (2, None, None, [])


def test_bad_input_writes_nothing(manyhands: Any, runs: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    page = tmp_path / "r.html"
    for paths, words in (
        ([tmp_path / "nowhere"], "there is no folder"),
        ([runs / "a" / "run.json"], "there is no folder"),
        ([tmp_path / "empty"], "no runs in"),
        ([runs / "torn"], "no runs in"),
        ([runs, tmp_path / "nowhere"], "there is no folder"),
    ):
        said = manyhands("report", *paths, "-o", page)
        assert said.code == 2
        assert words in said.error
        assert str(paths[-1]) in said.error
        assert not page.exists()
    assert "cannot be read" not in said.error


def test_a_page_that_is_a_folder(manyhands: Any, runs: Path, tmp_path: Path) -> None:
    said = manyhands("report", runs / "a", "-o", tmp_path)
    assert said.code == 2
    assert "is a folder" in said.error


def test_figures_in_a_file(manyhands: Any, runs: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    said = manyhands("report", runs / "a", "-o", tmp_path / "r.html", "--figures", tmp_path / "file")
    assert said.code == 2
    assert "choose another name" in said.error
    assert not (tmp_path / "r.html").exists()


def test_errors_are_json_too(manyhands: Any, tmp_path: Path) -> None:
    said = manyhands("report", tmp_path / "nowhere", "--json")
    assert json.loads(said.out)["exit_code"] == 2


def test_outputs_have_names_of_their_own(manyhands: Any, runs: Path, tmp_path: Path) -> None:
    said = manyhands("report", runs, "-o", tmp_path / "both", "--csv", tmp_path / "both")
    assert said.code == 2
    assert f"{tmp_path / 'both'} is named twice, by -o and --csv: give each output its own name" in said.err
    (tmp_path / "folder").mkdir()
    said = manyhands("report", runs, "-o", tmp_path / "page.html", "--csv", tmp_path / "folder")
    assert said.code == 2
    assert "is a folder: choose the name of a file" in said.err
    assert not (tmp_path / "page.html").exists()
