"""Every option that names a folder x what may stand there: it is filled, or refused in one line; nothing is lost."""

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

V1 = Path(__file__).parents[1] / "fixtures" / "v1"
SERIAL = "serial,device=cpu,precision=fp32,layout=contiguous,compile=off,threads=1"
SET = ("--data", "synthetic:1x6x6,4", "--batch-size", "16")
SMALL = (*SET, "--set", "data.size=40", "--set", "data.test_size=10", "--set", "model.width=0.1", "--epochs", "1")
OPTIONS = {
    "train --out": ("train", "mlp", *SMALL, "--plan", SERIAL, "--out"),
    "compare --out": ("compare", "mlp", *SMALL, "--plan", SERIAL, "--repeats", "1", "--out"),
    "study --out": ("study", str(V1.parent / "recipe.toml"), "--out"),
    "report --figures": ("report", "{run}", "-o", "{other}", "--figures"),
    "export --tensorboard": ("export", "{run}", "--tensorboard"),
}
NEW = ("nothing", "empty folder", "slash", "link to a folder", "255 bytes", "two levels down")
OLD = ("file", "private file", "dangling link", "link to a file", "device", "FIFO", "below a file", "somebody's")
FREE = ("report --figures", "export --tensorboard")  # a folder may hold other things too
SHORT = ("train --out", "export --tensorboard")


def placed(kind: str, folder: Path) -> str:
    """What is typed, once what is to stand there does."""
    path, other = folder / "out", folder / "other"
    if kind in ("empty folder", "somebody's", "slash"):
        path.mkdir()
    if kind == "somebody's":
        (path / "mine.txt").write_text("mine")
    if kind in ("file", "private file"):
        path.write_text("mine")
        path.chmod(0o600 if kind == "private file" else 0o644)
    if kind.startswith(("link", "dangling")):
        if kind == "link to a folder":
            other.mkdir()
        elif kind == "link to a file":
            other.write_text("mine")
        path.symlink_to(other)
    if kind == "FIFO":
        os.mkfifo(path)
    if kind == "device":
        try:
            os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        except OSError as error:
            pytest.skip(f"no device of our own can be made here: {error}")
    if kind == "below a file":
        path.write_text("mine")
        return f"{path}/run"
    names = {"slash": f"{path}/", "255 bytes": f"{folder}/{'n' * 255}", "two levels down": f"{path}/a/b"}
    return names.get(kind, str(path))


def standing(folder: Path) -> dict[str, object]:
    """Each name with its kind, mode, and content or target."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        mode = path.lstat().st_mode
        content = path.read_bytes() if stat.S_ISREG(mode) else os.readlink(path) if stat.S_ISLNK(mode) else None
        found[str(path.relative_to(folder))] = (mode, content)
    return found


def cells() -> Iterator[Any]:
    for option in OPTIONS:
        for kind in (*NEW, *OLD):
            yield pytest.param(option, kind, marks=() if option in SHORT else pytest.mark.long, id=f"{option}-{kind}")


@pytest.mark.parametrize(("option", "kind"), list(cells()))
def test_it_is_filled_or_refused(manyhands: Any, tmp_path: Path, option: str, kind: str) -> None:
    run = shutil.copytree(V1 / "finished", tmp_path / "run")
    folder = tmp_path / "scene"
    folder.mkdir()
    typed = placed(kind, folder)
    before = standing(folder)
    words = [word.format(run=run, other=tmp_path / "page.html") for word in OPTIONS[option]]
    said = manyhands(*words, typed, "-q")
    after = standing(folder)
    allowed = kind in NEW or (kind == "somebody's" and option in FREE)
    either = kind == "dangling link"  # TensorBoard makes the folder that it leads to
    assert said.code == (0 if allowed else 2) or (either and said.code == 0), said.err
    if said.code:
        assert "out" in said.error
        assert after == before
    else:
        assert {name: after[name] for name in before} == before
        assert list(Path(typed).iterdir())


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("name", ["", "checkpoints"])
def test_a_run_is_no_output(manyhands: Any, tmp_path: Path, option: str, name: str) -> None:
    run = shutil.copytree(V1 / "finished", tmp_path / "run")
    before = standing(tmp_path)
    words = [word.format(run=run, other=tmp_path / "page.html") for word in OPTIONS[option]]
    said = manyhands(*words, tmp_path / "run" / name, "-q")
    kept = standing(tmp_path)
    assert {each: kept[each] for each in before} == before
    assert said.code == 2 or (option in FREE and not name), said.err
