"""Ranks that fail, are killed, are interrupted: one clear message, and nothing left behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

import left_behind
from manyhands.comm.launch.elastic import ranks
from manyhands.errors import RankError

HERE = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(HERE))


def until(true: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not true() and time.monotonic() < deadline:
        time.sleep(0.05)
    return true()


def living(folder: Path) -> list[int]:
    """The processes of ranks that still run."""
    return [pid for pid in (int(file.read_text()) for file in folder.glob("*.pid")) if psutil.pid_exists(pid)]


def nothing_is_left(folder: Path) -> None:
    assert list(folder.glob("*.pid"))
    assert not living(folder)
    assert not left_behind.segments()


@pytest.mark.parametrize(
    ("mode", "backend", "message"),
    [
        ("raise", "gloo", "rank 1 failed: ValueError: a broken picture"),
        ("kill", "shm", "rank 1 was killed (signal 9)"),
        ("kill", "gloo", "rank 1 was killed (signal 9)"),
    ],
)
def test_the_rank_that_failed_first_is_named(tmp_path: Path, mode: str, backend: str, message: str) -> None:
    with pytest.raises(RankError) as caught:
        ranks("faulty", [mode, backend, str(tmp_path)], 2)
    failed = max(file.stat().st_mtime for file in tmp_path.glob("*.met"))
    assert str(caught.value) == message
    assert time.time() - failed < 10
    nothing_is_left(tmp_path)


def test_restarted_ranks_meet_again(tmp_path: Path) -> None:
    environment, handler = dict(os.environ), signal.getsignal(signal.SIGINT)
    ranks("faulty", ["kill once", "gloo", str(tmp_path)], 2, restarts=1)
    assert {file.name for file in tmp_path.glob("*.pid")} == {"0-0.pid", "1-0.pid", "0-1.pid", "1-1.pid"}
    nothing_is_left(tmp_path)
    assert dict(os.environ) == environment
    assert signal.getsignal(signal.SIGINT) is handler


@pytest.fixture
def launcher(tmp_path: Path) -> "Callable[[str, str], subprocess.Popen[str]]":
    """A launcher of two ranks in a process of its own, which have met."""

    def start(mode: str, backend: str) -> "subprocess.Popen[str]":
        order = f"ranks('faulty', ['{mode}', '{backend}', '{tmp_path}'], 2)"
        code = f"from manyhands.comm.launch.elastic import ranks; {order}"
        child = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
        assert until(lambda: len(list(tmp_path.glob("*.met"))) == 2, 60)
        return child

    return start


def test_ranks_end_when_the_launcher_is_killed(
    tmp_path: Path, launcher: "Callable[[str, str], subprocess.Popen[str]]"
) -> None:
    with launcher("linger", "shm") as child:
        child.kill()
        assert until(lambda: not living(tmp_path), 5)
    nothing_is_left(tmp_path)


def test_an_interruption_leaves_nothing(
    tmp_path: Path, launcher: "Callable[[str, str], subprocess.Popen[str]]"
) -> None:
    with launcher("linger", "shm") as child:
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate(timeout=20)
    assert errors.splitlines()[-1] == "KeyboardInterrupt"
    nothing_is_left(tmp_path)
