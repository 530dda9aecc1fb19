"""Every output option of every command x what may stand at its path: written, or refused in one line."""

import contextlib
import os
import shutil
import stat
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from manyhands.machine.detect import detect
from manyhands.measure import machine_probe as probing

RUN = Path(__file__).parents[1] / "fixtures" / "v1" / "finished"
SMALL = ("--set", "data.size=200", "--set", "data.test_size=40", "--set", "model.width=0.1")
ON = ("--data", "synthetic:1x6x6,4", "--machine", "p100x4-ib", "--batch-size", "16")
SERIAL = "serial,device=cpu,precision=fp32,layout=contiguous,compile=off,threads=1"

# Command, option, what else is said, and whether it takes more than a moment.
OPTIONS = {
    "report -o": (("report", "{run}"), "-o"),
    "report --md": (("report", "{run}", "-o", "{other}"), "--md"),
    "report --csv": (("report", "{run}", "-o", "{other}"), "--csv"),
    "export --csv": (("export", "{run}"), "--csv"),
    "export --trace": (("export", "{run}"), "--trace"),
    "export --onnx": (("export", "{run}"), "--onnx"),
    "export --torch": (("export", "{run}"), "--torch"),
    "average -o": (("average", "{run}", "{twin}"), "-o"),
    "plan -o": (("plan", "mlp", *ON, "--budget", "0.2"), "-o"),
    "simulate --trace": (("simulate", "mlp", *ON, "--plan", "data:2"), "--trace"),
    "explain --png": (("explain", "data:2", "--model", "mlp", *ON), "--png"),
    "tune -o": (("tune",), "-o"),
    "tune --plot": (("tune",), "--plot"),
    "probe --out": (("probe", "--ranks", "1"), "--out"),
}
TUNE = ("batch-size", "mlp", "--data", "synthetic:1x6x6,4", "--plan", SERIAL, *SMALL, "--sizes", "64")
TUNED = (*TUNE, "--target", "0.26", "--budget", "1", "--epochs", "2")
SHORT = ("report --csv", "export --csv", "export --trace")
KINDS = {
    "nothing": True,
    "private": True,
    "read-only": False,
    "hard link": True,
    "another owner's": True,
    "link": True,
    "dangling link": True,
    "link to a device": True,
    "FIFO": True,
    "device": True,
    "folder": False,
    "slash": False,
    "255 bytes": True,
    "input": False,
}


@dataclass
class Scene:
    """What stands at the path before, and what must be true after."""

    name: str  # as it is typed
    check: Callable[[], None]


@contextlib.contextmanager
def scene(kind: str, folder: Path, run: Path, end: str) -> Iterator[Scene]:
    path, other = folder / f"out{end}", folder / f"other{end}"
    if kind == "nothing":
        yield Scene(str(path), lambda: _has(path, mode=0o644))
    elif kind in ("private", "read-only", "another owner's"):
        path.write_text("before")
        mode = 0o400 if kind == "read-only" else 0o600
        path.chmod(mode)
        if kind == "another owner's":
            if os.geteuid():
                pytest.skip("only root may give a file away")
            os.chown(path, 12345, 12345)
        owner = path.stat().st_uid
        yield Scene(str(path), lambda: _has(path, mode=mode, owner=owner, old=kind == "read-only"))
    elif kind == "hard link":
        other.write_text("before")
        path.hardlink_to(other)

        def both() -> None:
            _has(path)
            assert path.samefile(other)

        yield Scene(str(path), both)
    elif kind in ("link", "dangling link"):
        if kind == "link":
            other.write_text("before")
        path.symlink_to(other)

        def through() -> None:
            assert path.is_symlink()
            _has(other)

        yield Scene(str(path), through)
    elif kind in ("device", "link to a device"):
        device = other if kind == "link to a device" else path
        try:
            os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, 3))
            device.write_text("")
        except OSError as error:
            pytest.skip(f"no device of our own can be made here: {error}")
        if device is other:
            path.symlink_to(other)

        def stays() -> None:
            assert stat.S_ISCHR(device.stat().st_mode)
            assert path.is_symlink() == (device is other)

        yield Scene(str(path), stays)
    elif kind == "FIFO":
        os.mkfifo(path)
        read: list[bytes] = []
        # Non-blocking at first, so that the reader is there although nobody may ever write.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        held = os.open(path, os.O_WRONLY)
        os.set_blocking(descriptor, True)

        def drain() -> None:
            while block := os.read(descriptor, 1 << 16):
                read.append(block)

        reader = threading.Thread(target=drain)
        reader.start()
        closed = threading.Event()

        def arrived() -> None:
            os.close(held)
            closed.set()
            reader.join(10)
            assert stat.S_ISFIFO(path.stat().st_mode)
            assert len(b"".join(read)) > 10

        yield Scene(str(path), arrived)
        if not closed.is_set():
            os.close(held)
        reader.join(10)
        os.close(descriptor)
    elif kind == "folder":
        path.mkdir()
        yield Scene(str(path), lambda: _is_empty(path))
    elif kind == "slash":
        yield Scene(f"{folder}/new/", lambda: _is_absent(folder / "new"))
    elif kind == "255 bytes":
        path = folder / ("n" * (255 - len(end)) + end)
        yield Scene(str(path), lambda: _has(path))
    else:
        target = run / "metrics.jsonl"
        before = target.read_bytes()

        def kept() -> None:
            assert target.read_bytes() == before

        if end == ".png":  # the only name that a picture may have
            path.symlink_to(target)
            target = path
        yield Scene(str(target), kept)


def _has(path: Path, mode: int | None = None, owner: int | None = None, old: bool = False) -> None:
    assert path.is_file()
    assert (path.read_bytes() == b"before") == old
    if mode is not None:
        assert stat.S_IMODE(path.stat().st_mode) == mode
    if owner is not None:
        assert path.stat().st_uid == owner


def _is_empty(path: Path) -> None:
    assert path.is_dir()
    assert not list(path.iterdir())


def _is_absent(path: Path) -> None:
    assert not path.exists()


def cells() -> Iterator[Any]:
    for option in OPTIONS:
        for kind in KINDS:
            marks = () if option in SHORT else pytest.mark.long
            yield pytest.param(option, kind, id=f"{option}-{kind}", marks=marks)


@pytest.mark.parametrize(("option", "kind"), list(cells()))
def test_it_is_written_or_refused(
    manyhands: Any, tmp_path: Path, shared_home: Path, monkeypatch: pytest.MonkeyPatch, option: str, kind: str
) -> None:
    monkeypatch.setenv("MANYHANDS_HOME", str(shared_home))
    if option == "probe --out":  # a minute, 14 times over, for what other tests measure
        monkeypatch.setattr(probing, "probe", lambda ranks: detect())
    run, twin = (Path(shutil.copytree(RUN, tmp_path / name)) for name in ("run", "twin"))
    folder = tmp_path / "out"
    folder.mkdir()
    words, name = OPTIONS[option]
    if words[0] == "tune":
        words = ("tune", *TUNED)
    said_of = [word.format(run=run, twin=twin, other=tmp_path / "other.html") for word in words]
    with scene(kind, folder, run, ".png" if name in ("--plot", "--png") else ".out") as there:
        before = {path.name for path in folder.iterdir()}
        said = manyhands(*said_of, name, there.name, "--quiet")
        assert said.code == (0 if KINDS[kind] else 2), said.err
        if not KINDS[kind]:
            assert there.name.rstrip("/") in said.error
        there.check()
        added = {path.name for path in folder.iterdir()} - before
        assert added <= {Path(there.name).name, f"other{Path(there.name).suffix}"}, added


@pytest.mark.parametrize(
    "words",
    [
        ("report", "{run}", "-o", "{run}/run.json"),
        ("report", "{run}", "--figures", "{run}/checkpoints"),
        ("export", "{run}", "--tensorboard", "{run}/checkpoints/step-00000036"),
        ("average", "{run}", "{twin}", "-o", "{run}/checkpoints/step-00000036/model.safetensors"),
        ("export", "{run}", "--csv", "{tmp}/same", "--trace", "{tmp}/link"),
        ("plan", "{tmp}/mine.py:build", "--data", "synthetic:1x6x6,4", "-o", "{tmp}/mine.py"),
        ("simulate", "mlp", "--plan", "{tmp}/plan.toml", *ON, "--trace", "{tmp}/plan.toml"),
        ("report", "{run}", "-o", "/"),
        ("average", "{run}", "{twin}", "-o", "/"),
    ],
)
def test_nothing_that_is_read_is_replaced(manyhands: Any, tmp_path: Path, words: tuple[str, ...]) -> None:
    run, twin = (Path(shutil.copytree(RUN, tmp_path / name)) for name in ("run", "twin"))
    (tmp_path / "mine.py").write_text("def build(): ...\n")
    (tmp_path / "plan.toml").write_text('axes = ["data:2"]\n')
    (tmp_path / "same").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "same")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    said = manyhands(*(word.format(run=run, twin=twin, tmp=tmp_path) for word in words))
    assert said.code == 2
    assert said.error
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_new_name_inside_a_run_is_free(manyhands: Any, tmp_path: Path) -> None:
    run = Path(shutil.copytree(RUN, tmp_path / "run"))
    assert manyhands("report", run, "-o", run / "report.html", "-q").code == 0
    assert manyhands("report", run, "-o", run / "report.html", "-q").code == 0
