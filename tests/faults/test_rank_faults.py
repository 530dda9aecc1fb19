"""Ranks that are killed: the command ends with their name, nothing is left, and a resumed run loses nothing."""

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

import left_behind
from conftest import mpirun_command
from manyhands.runs import run_folder

PLAN = "data:2,precision=fp32,layout=contiguous,compile=off"
ARGUMENTS = ("train", "mlp", "--data", "synthetic:1x10x10,4", "--plan", PLAN, "--batch-size", "50", "--epochs", "4")
EVERY = ("--set", "data.size=4000", "--set", "checkpoint.every_steps=20", "--set", "model.dropout=0.5")

pytestmark = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")


def curve(folder: Path) -> list[tuple[int, float]]:
    return [(each["step"], each.get("loss", each.get("val_loss"))) for each in run_folder.load(folder).metrics()]


def wait_for(condition, seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def start(folder: Path, *more: object) -> "subprocess.Popen[str]":
    """A training that has written two checkpoints. Of an option that is said twice the last holds."""
    command = [sys.executable, "-m", "manyhands", *ARGUMENTS, *EVERY, *map(str, more), "--out", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: len(list(folder.glob("checkpoints/step-*"))) >= 2 or process.poll() is not None)
    assert process.poll() is None, process.communicate()[1]
    return process


def pids(folder: Path) -> list[int]:
    return [rank["pid"] for rank in run_folder.load(folder).record["ranks"]]


def shared_names(ranks: list[int]) -> list[str]:
    """Files of shared memory that ranks have mapped, and that a kill would leave behind."""
    maps = [line for pid in ranks for line in Path(f"/proc/{pid}/maps").read_text().splitlines()]
    return [line for line in maps if "/dev/shm/" in line and not line.endswith("(deleted)")]


def living(ranks: list[int]) -> list[int]:
    return [pid for pid in ranks if psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE]


LONG = pytest.mark.long
RESUMED = ("", "compress=powersgd", "backend=gloo", "backend=gloo,shard=optimizer", "shard=full")


@LONG
@pytest.mark.parametrize("options", RESUMED)
def test_a_killed_rank_is_named_and_the_run_resumes_to_the_bit(manyhands, tmp_path: Path, options: str) -> None:
    plan = ("--plan", f"{PLAN},{options}".rstrip(","))
    whole = manyhands(*ARGUMENTS, *EVERY, *plan, "--out", tmp_path / "whole", "-q")
    assert whole.code == 0, whole.err
    process = start(tmp_path / "killed", "--epochs", 40, *plan)
    ranks = pids(tmp_path / "killed")
    os.kill(ranks[1], signal.SIGKILL)
    _, errors = process.communicate(timeout=10)
    assert process.returncode == 1
    assert errors.splitlines()[-1] == "error: rank 1 was killed (signal 9)"
    assert not [pid for pid in ranks if Path(f"/proc/{pid}").exists()]
    assert not left_behind.segments()
    run = run_folder.load(tmp_path / "killed")
    assert run.status == "failed"
    run.update(config={**run.record["config"], "train": {**run.record["config"]["train"], "epochs": 4}})
    said = manyhands("train", "--resume", tmp_path / "killed", "--json")
    assert said.code == 0, said.err
    assert curve(tmp_path / "killed") == curve(tmp_path / "whole")


@pytest.mark.parametrize(
    ("backend", "killed"),
    # On a busy machine MPICH's mpirun may name a rank that it has killed itself.
    [("shm", 0), *(pytest.param(*each, marks=LONG) for each in (("gloo", 0), ("mpi", 0), ("mpi", 1)))],
)
def test_any_killed_rank_is_named(tmp_path: Path, backend: str, killed: int) -> None:
    if backend == "mpi":
        mpirun_command()
    process = start(tmp_path / "run", "--epochs", 400, "--plan", f"{PLAN},backend={backend}")
    ranks = pids(tmp_path / "run")
    assert shared_names(ranks) == []
    os.kill(ranks[killed], signal.SIGKILL)
    _, errors = process.communicate(timeout=10)
    assert process.returncode == 1
    assert errors.splitlines()[-1] == f"error: rank {killed} was killed (signal 9)"
    assert not [pid for pid in ranks if Path(f"/proc/{pid}").exists()]
    assert not left_behind.segments()
    assert run_folder.load(tmp_path / "run").status == "failed"


@pytest.mark.long
@pytest.mark.parametrize("backend", ["gloo", "shm", "mpi"])
@pytest.mark.parametrize("words", ["local:2,every=100", "data:2,consistency=stale"])
def test_a_killed_rank_is_named_by_ranks_that_do_not_keep_step(tmp_path: Path, words: str, backend: str) -> None:
    if backend == "mpi":
        mpirun_command()
    plan = f"{words},backend={backend},precision=fp32,layout=contiguous,compile=off"
    process = start(tmp_path / "run", "--epochs", 400, "--plan", plan)
    os.kill(pids(tmp_path / "run")[1], signal.SIGKILL)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 1
    assert errors.splitlines()[-1] == "error: rank 1 was killed (signal 9)"
    assert not left_behind.segments()


@pytest.mark.parametrize(
    ("backend", "late"),
    [
        *(pytest.param(*each, marks=LONG) for each in (("gloo", 0), ("gloo", 1), ("shm", 0), ("mpi", 0), ("mpi", 1))),
        pytest.param("shm", 1, marks=LONG),
    ],
)
def test_a_rank_that_hangs_is_named(tmp_path: Path, backend: str, late: int) -> None:
    if backend == "mpi":
        mpirun_command()
    process = start(
        tmp_path / "run", "--epochs", 400, "--plan", f"{PLAN},backend={backend}", "--set", "train.timeout=4"
    )
    stopped = pids(tmp_path / "run")[late]
    os.kill(stopped, signal.SIGSTOP)
    try:
        _, errors = process.communicate(timeout=25)  # torch itself waits half a minute more
    finally:
        with suppress(ProcessLookupError):
            os.kill(stopped, signal.SIGKILL)
    assert process.returncode == 1
    waited = rf"error: rank {late} did not come: rank {1 - late} waited 4 s in \w+"
    assert re.match(waited, errors.splitlines()[-1]), errors


@pytest.mark.parametrize(
    ("backend", "how"),
    [
        ("shm", signal.SIGKILL),
        ("mpi", signal.SIGKILL),
        pytest.param("mpi", signal.SIGHUP, marks=LONG),
        pytest.param("shm", signal.SIGHUP, marks=LONG),
    ],
)
def test_the_end_of_the_launcher_is_the_end_of_all(tmp_path: Path, backend: str, how: signal.Signals) -> None:
    if backend == "mpi":
        mpirun_command()
    process = start(tmp_path / "run", "--epochs", 400, "--plan", f"{PLAN},backend={backend}")
    started = [each.pid for each in psutil.Process(process.pid).children(recursive=True)]
    assert set(pids(tmp_path / "run")) <= set(started)
    process.send_signal(how)
    process.communicate(timeout=10)
    wait_for(lambda: not living(started), seconds=5)
    assert run_folder.load(tmp_path / "run").status == ("interrupted" if how == signal.SIGHUP else "running")


def test_a_run_that_still_trains_is_not_resumed(manyhands, tmp_path: Path) -> None:
    process = start(tmp_path / "run", "--epochs", 400)
    said = manyhands("train", "--resume", tmp_path / "run")
    assert said.code == 2
    assert said.error.startswith(f"{tmp_path / 'run'} is still being trained (process {process.pid})")
    assert process.poll() is None
    assert run_folder.load(tmp_path / "run").status == "running"
    process.kill()
    process.communicate()
    run = run_folder.load(tmp_path / "run")
    run.update(config={**run.record["config"], "train": {**run.record["config"]["train"], "max_steps": 60}})
    again = manyhands("train", "--resume", tmp_path / "run", "--json")
    assert again.code == 0, again.err
    assert again.json["steps"] >= 60


@pytest.mark.parametrize("backend", ["shm", pytest.param("mpi", marks=LONG)])
def test_with_restarts_it_goes_on_by_itself(tmp_path: Path, backend: str) -> None:
    if backend == "mpi":
        mpirun_command()
    plan = f"{PLAN},backend={backend}"
    process = start(tmp_path / "run", "--epochs", 8, "--set", "train.restarts=1", "--plan", plan)
    os.kill(pids(tmp_path / "run")[0], signal.SIGKILL)
    _, errors = process.communicate(timeout=90)
    assert process.returncode == 0, errors
    assert "resuming from step-" in (tmp_path / "run" / "log.txt").read_text()
    assert [step for step, _ in curve(tmp_path / "run")][-1] == 8 * 76


def test_bad_input_found_by_a_rank_is_still_bad_input(manyhands, tmp_path: Path) -> None:
    said = manyhands("train", "convnet", "--data", "mnist", "--plan", PLAN, "--out", tmp_path / "run", "-q")
    assert said.code == 2
    assert "the files of mnist are not here" in said.error
    assert not (tmp_path / "run").exists()
