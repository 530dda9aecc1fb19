"""Ranks that are killed: the command ends with their name, nothing is left, and a resumed run loses nothing."""

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from conftest import mpirun_command
from manyhands.runs import store

PLAN = "data:2,precision=fp32,layout=contiguous,compile=off"
ARGUMENTS = ("train", "mlp", "--data", "synthetic:1x10x10,4", "--plan", PLAN, "--batch-size", "50", "--epochs", "4")
EVERY = ("--set", "data.size=4000", "--set", "checkpoint.every_steps=20", "--set", "model.dropout=0.5")

pytestmark = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")


def curve(folder: Path) -> list[tuple[int, float]]:
    return [(each["step"], each.get("loss", each.get("val_loss"))) for each in store.load(folder).metrics()]


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
    return [rank["pid"] for rank in store.load(folder).record["ranks"]]


LONG = pytest.mark.long
RESUMED = (
    "",
    "compress=powersgd",
    *(pytest.param(each, marks=LONG) for each in ("backend=gloo", "backend=gloo,shard=optimizer", "shard=full")),
)


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
    assert not [name for name in os.listdir("/dev/shm") if "manyhands" in name]
    run = store.load(tmp_path / "killed")
    assert run.status == "failed"
    run.update(config={**run.record["config"], "train": {**run.record["config"]["train"], "epochs": 4}})
    said = manyhands("train", "--resume", tmp_path / "killed", "--json")
    assert said.code == 0, said.err
    assert curve(tmp_path / "killed") == curve(tmp_path / "whole")


@pytest.mark.parametrize(
    ("backend", "killed"),
    [("shm", 0), ("mpi", 1), *(pytest.param(*each, marks=LONG) for each in (("gloo", 0), ("mpi", 0)))],
)
def test_any_killed_rank_is_named(tmp_path: Path, backend: str, killed: int) -> None:
    if backend == "mpi":
        mpirun_command()
    process = start(tmp_path / "run", "--epochs", 400, "--plan", f"{PLAN},backend={backend}")
    ranks = pids(tmp_path / "run")
    before = set(Path("/dev/shm").glob("mpich_shm_*"))
    os.kill(ranks[killed], signal.SIGKILL)
    _, errors = process.communicate(timeout=10)
    for left in before & set(Path("/dev/shm").glob("mpich_shm_*")):
        left.unlink()  # MPICH's own, which it leaves when a rank is killed
    assert process.returncode == 1
    assert errors.splitlines()[-1] == f"error: rank {killed} was killed (signal 9)"
    assert not [pid for pid in ranks if Path(f"/proc/{pid}").exists()]
    assert not [name for name in os.listdir("/dev/shm") if "manyhands" in name]
    assert store.load(tmp_path / "run").status == "failed"


@pytest.mark.parametrize(
    ("backend", "late"),
    [
        ("gloo", 1),
        ("mpi", 1),
        *(pytest.param(*each, marks=LONG) for each in (("gloo", 0), ("shm", 0), ("shm", 1), ("mpi", 0))),
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
        _, errors = process.communicate(timeout=90)
    finally:
        with suppress(ProcessLookupError):
            os.kill(stopped, signal.SIGKILL)
    assert process.returncode == 1
    waited = rf"rank {1 - late} failed: rank {1 - late} waited 4 s in \w+.* for rank {late}, which did not come"
    assert re.search(waited, errors.splitlines()[-1]), errors


def test_a_killed_launcher_takes_its_ranks_along(tmp_path: Path) -> None:
    process = start(tmp_path / "run", "--epochs", 400)
    ranks = pids(tmp_path / "run")
    process.kill()
    process.communicate()
    wait_for(lambda: not [pid for pid in ranks if Path(f"/proc/{pid}").exists()], seconds=5)


def test_with_restarts_it_goes_on_by_itself(tmp_path: Path) -> None:
    process = start(tmp_path / "run", "--epochs", 8, "--set", "train.restarts=1")
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
