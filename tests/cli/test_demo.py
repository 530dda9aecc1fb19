"""`manyhands demo`, for real but small."""

import json
from pathlib import Path

import pytest

from manyhands.cli.demo import MARKER
from manyhands.cli.main import run


def test_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("MANYHANDS_HOME", str(tmp_path / "home"))
    out = tmp_path / "demo"
    out.mkdir()
    (out / MARKER).touch()
    (out / "index.html").write_text("an earlier demo")
    (out / "0-plain-r0").mkdir()
    (out / "0-plain-r0" / "run.json").write_text("{}")
    code = run(["demo", "--out", str(out), "--size", "600", "--epochs", "1", "--json", "--quiet"])
    answer = json.loads(capsys.readouterr().out)
    assert code == 0, answer
    assert [row["plan"] for row in answer["rows"]] == ["plain", "serial"]
    assert all(row["n"] == 1 for row in answer["rows"])
    page = Path(answer["page"]).read_text()
    assert answer["finding"] in page
    assert "--set data.size=600" in page
    assert Path(answer["picture"]).read_bytes().startswith(b"\x89PNG")
    assert sorted(each.name for each in out.iterdir()) == sorted(
        [MARKER, "0-plain-r0", "1-serial-r0", "compare.json", "demo.png", "index.html"]
    )


@pytest.mark.parametrize("name", ["notes.txt", "compare.json"])
def test_a_folder_that_is_no_demo_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    (tmp_path / name).write_text("mine")
    assert run(["demo", "--out", str(tmp_path)]) == 2
    assert (tmp_path / name).read_text() == "mine"
    error = capsys.readouterr().err
    assert str(tmp_path) in error
    assert error.count("\n") == 1


def test_a_file_is_no_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "demo").write_text("mine")
    assert run(["demo", "--out", str(tmp_path / "demo")]) == 2
    assert (tmp_path / "demo").read_text() == "mine"
    assert "choose another name" in capsys.readouterr().err
