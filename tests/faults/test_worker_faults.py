"""Workers that are killed, and servers: the others go on where they can, and nothing is left behind."""

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from manyhands.engine.loop import checkpoint_folder
from manyhands.runs import run_folder

ARGUMENTS = (
    "train",
    "mlp",
    "--data",
    "digits",
    "--batch-size",
    "48",
    "--epochs",
    "30",
    "--set",
    "optim.lr=0.002",
    "--set",
    "data.size=2000",
)
SAID = "precision=fp32,layout=contiguous,compile=off"


def start(folder: Path, words: str, *more: str) -> "subprocess.Popen[str]":
    """A training whose workers are all at work."""
    command = [sys.executable, "-m", "manyhands", *ARGUMENTS, "--plan", f"{words},{SAID}", *more, "--out", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 90
    while not list(folder.glob("checkpoints/step-*")):
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline, "it did not begin in time"
        time.sleep(0.01)
    return process


def pids(folder: Path) -> list[int]:
    return [rank["pid"] for rank in run_folder.load(folder).record["ranks"]]


def left(parent: int, known: list[int]) -> list[int]:
    """Which of the run's processes still live."""
    return [pid for pid in (parent, *known) if psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie"]


def workers(parent: int) -> list[int]:
    """Those that live now, be they restarted."""
    found = []
    for each in psutil.Process(parent).children():
        with suppress(psutil.NoSuchProcess):  # it has ended meanwhile
            if "manyhands.train.async_worker" in (line := each.cmdline()) and int(line[-1]) < 4:
                found.append(each.pid)
    return found


def ended(process: "subprocess.Popen[str]", folder: Path) -> run_folder.Run:
    known = pids(folder)
    _, errors = process.communicate(timeout=180)
    assert process.returncode == 0, errors
    assert not left(process.pid, known)
    return run_folder.load(folder)


@pytest.mark.parametrize(
    ("words", "restarts"),
    [
        ("server:2+1,consistency=async", "1"),
        pytest.param("gossip:2", "0", marks=pytest.mark.long),
        pytest.param("server:3+1,consistency=async", "0", marks=pytest.mark.long),
        pytest.param("gossip:3", "1", marks=pytest.mark.long),
    ],
)
def test_the_others_go_on_without_a_worker(tmp_path: Path, words: str, restarts: str) -> None:
    folder = tmp_path / "run"
    process = start(folder, words, "--set", f"train.restarts={restarts}")
    os.kill(pids(folder)[1], signal.SIGKILL)
    run = ended(process, folder)
    assert run.result is not None
    assert run.result["steps"] == run.record["total_steps"]
    assert run.result["test_accuracy"] > 0.85
    log = (folder / "log.txt").read_text()
    assert "rank 1 was killed (signal 9); the others go on" in log
    assert ("and it starts again" in log) == (restarts == "1")


@pytest.mark.long
def test_no_worker_is_left(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = start(folder, "server:2+1,consistency=async")
    known = pids(folder)
    for pid in known[:2]:
        os.kill(pid, signal.SIGKILL)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "no worker is left (rank" in errors
    assert not left(process.pid, known)


@pytest.mark.long
@pytest.mark.parametrize("words", ["server:2+2,consistency=async", "server:2+1"])
def test_a_server_that_dies_ends_the_run_and_the_checkpoint_is_whole(tmp_path: Path, words: str) -> None:
    folder = tmp_path / "run"
    process = start(folder, words)
    known = pids(folder)
    os.kill(known[-1], signal.SIGKILL)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert f"server {len(known) - 3} has ended" in errors
    assert "the last checkpoint was kept" in errors
    assert not left(process.pid, known)
    assert checkpoint_folder.is_whole(checkpoint_folder.listing(folder / "checkpoints")[-1])
    again = [sys.executable, "-m", "manyhands", "train", "--resume", str(folder)]
    assert subprocess.run(again, capture_output=True, timeout=180, check=False).returncode == 0


@pytest.mark.long
def test_a_worker_without_which_it_cannot_go_on_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = start(folder, "server:2+1,consistency=stale,staleness=2")
    os.kill(pids(folder)[0], signal.SIGKILL)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "rank 0 was killed (signal 9)" in errors


@pytest.mark.long
@pytest.mark.parametrize("words", ["server:2+1,consistency=async", pytest.param("gossip:2", marks=pytest.mark.long)])
def test_all_end_with_the_conductor(tmp_path: Path, words: str) -> None:
    folder = tmp_path / "run"
    process = start(folder, words)
    known = pids(folder)
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 20
    while left(process.pid, known):
        assert time.monotonic() < deadline, "processes were left behind"
        time.sleep(0.05)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("words", ["server:4+1,consistency=async", "gossip:4"])
def test_a_hundred_kills(tmp_path: Path, words: str) -> None:
    """Of workers drawn by seed, at moments drawn by seed: every run ends as accurate as an undisturbed one."""
    # Long enough, and slower at the end, that runs differ little by chance.
    size = ("--set", "data.size=50000", "--epochs", "5", "--set", "optim.schedule=cosine")
    undisturbed = ended(start(tmp_path / "whole", words, *size), tmp_path / "whole").result
    assert undisturbed is not None
    chance, kills = random.Random(0), 0
    while kills < 100:
        folder = tmp_path / f"run{kills}"
        process = start(folder, words, *size, "--set", "train.restarts=100")
        for _ in range(10):
            time.sleep(chance.random())
            if process.poll() is None and (living := workers(process.pid)):
                os.kill(chance.choice(living), signal.SIGKILL)
                kills += 1
        result = ended(process, folder).result
        assert result is not None
        assert abs(result["test_accuracy"] - undisturbed["test_accuracy"]) <= 0.005
