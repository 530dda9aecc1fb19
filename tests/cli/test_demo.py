"""`manyhands demo`, for real but small."""

from pathlib import Path

import pytest

from manyhands.cli.demo import MARKER, PLANS

SMALL = (
    "--set",
    "data.size=400",
    "--set",
    "model.width=0.25",
    "--set",
    "train.batch_size=64",
    "--set",
    "train.epochs=1",
)


@pytest.mark.long
@pytest.mark.parametrize("style", ["--json", "--quiet"])
def test_demo(manyhands, shared_home, monkeypatch, tmp_path: Path, style: str) -> None:
    monkeypatch.setenv("MANYHANDS_HOME", str(shared_home))
    out = tmp_path / "demo"
    (out / "0-plain-r0").mkdir(parents=True)
    (out / "0-plain-r0" / "run.json").write_text("an earlier demo's")
    (out / MARKER).touch()
    (out / "letter.txt").write_text("not the demo's")
    said = manyhands("demo", "--out", out, *SMALL, style)
    assert said.code == 0, said.err
    runs = ["0-plain-r0", "1-auto-r0", "2-auto-precision-fp32-r0"]
    assert sorted(each.name for each in out.iterdir()) == sorted(
        [".lock", MARKER, *runs, "letter.txt", "compare.json", "demo.png", "index.html"]
    )
    assert (out / "demo.png").read_bytes().startswith(b"\x89PNG")
    page = (out / "index.html").read_text()
    assert "--set data.size=400" in page
    if style == "--json":
        assert [(row["plan"], row["n"]) for row in said.json["rows"]] == [(plan, 1) for plan in PLANS]
        assert said.json["finding"] in page
        assert Path(said.json["page"]) == out / "index.html"
        assert Path(said.json["picture"]) == out / "demo.png"
    else:
        found = next(line for line in said.out.splitlines() if "x as fast" in line)
        assert found in page
        assert f"page: {out / 'index.html'}" in said.out


@pytest.mark.parametrize("name", ["notes.txt", "compare.json"])
def test_a_folder_that_is_no_demo_is_left_alone(manyhands, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    said = manyhands("demo", "--out", tmp_path)
    assert said.code == 2
    assert str(tmp_path) in said.error
    assert (tmp_path / name).read_text() == "mine"


def test_a_file_is_no_folder(manyhands, tmp_path: Path) -> None:
    (tmp_path / "demo").write_text("mine")
    said = manyhands("demo", "--out", tmp_path / "demo")
    assert said.code == 2
    assert "choose another name" in said.error
    assert (tmp_path / "demo").read_text() == "mine"
