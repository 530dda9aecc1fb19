"""Inside torchrun and mpirun a plan joins the ranks that are there, and refuses to where the numbers do not fit."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import mpirun_command
from manyhands.config import Config
from manyhands.plan.spec import parse
from manyhands.runs import run_folder
from manyhands.train.create import begin

ORDER = (
    "train",
    "mlp",
    "--data",
    "synthetic:1x10x10,4",
    "--batch-size",
    "16",
    "--epochs",
    "1",
    "--set",
    "data.size=200",
)
REST = "precision=fp32,layout=contiguous,compile=off"
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node")

pytestmark = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")


def started(command: list[str]) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env=environment)


def by(launcher: str, *arguments: object) -> "subprocess.CompletedProcess[str]":
    if launcher == "torchrun":
        return started([*TORCHRUN, "2", "-m", "manyhands", *map(str, arguments)])
    return started([*mpirun_command(), "-n", "2", sys.executable, "-m", "manyhands", *map(str, arguments)])


@pytest.mark.parametrize(
    ("launcher", "backend"),
    [("torchrun", "shm"), pytest.param("torchrun", "gloo", marks=pytest.mark.long), ("mpirun", "mpi")],
)
def test_joins(manyhands, tmp_path: Path, launcher: str, backend: str) -> None:
    """One run, of two ranks, that says its result once: that of the ranks that manyhands starts itself."""
    plan = f"data:2,backend={backend},{REST}"
    joined = by(launcher, *ORDER, "--plan", plan, "--out", tmp_path / "joined", "--json", "-q")
    assert joined.returncode == 0, joined.stderr
    result = json.loads(joined.stdout)  # one object, of one rank
    run = run_folder.load(tmp_path / "joined")
    assert run.status == "finished"
    assert [rank["rank"] for rank in run.record["ranks"]] == [0, 1]
    assert len({rank["pid"] for rank in run.record["ranks"]}) == 2
    said = manyhands(*ORDER, "--plan", f"data:2,backend=shm,{REST}", "--out", tmp_path / "own", "--json", "-q")
    assert result["final_loss"] == pytest.approx(said.json["final_loss"], rel=1e-5)
    assert result["test_accuracy"] == said.json["test_accuracy"]


def test_mpi_needs_mpirun(tmp_path: Path) -> None:
    mpirun_command()
    done = by("torchrun", *ORDER, "--plan", f"data:2,backend=mpi,{REST}", "--out", tmp_path / "run", "-q")
    assert "exitcode: 2" in done.stderr  # of a rank; torchrun's own is 1
    assert errors(done) == [
        "error: backend=mpi needs mpirun: MPI knows 1 of 2 ranks here; start them by mpirun -n 2, or say backend=gloo"
    ]
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (("--batch-size", "5000"), "batch size 5000 is larger than the training set"),  # which every rank finds
        (("--plan", f"data:2,workers=3,backend=shm,{REST}"), "workers=3 is for feed=loader"),  # the first alone
        (("--plan", f"data:2,workers=3,backend=mpi,{REST}"), "workers=3 is for feed=loader"),
    ],
)
def test_bad_input_that_ranks_find_is_said_once_and_leaves_nothing(
    tmp_path: Path, more: tuple[str, ...], told: str
) -> None:
    done = by("mpirun", *ORDER, "--plan", f"data:2,{REST}", *more, "--out", tmp_path / "run", "-q")
    assert done.returncode & 2
    (error,) = errors(done)
    assert told in error
    assert not (tmp_path / "run").exists()


def errors(done: "subprocess.CompletedProcess[str]") -> list[str]:
    return [line for line in done.stderr.splitlines() if line.startswith("error: ")]


def test_a_run_goes_on_with_as_many_ranks_as_it_had(manyhands, monkeypatch, tmp_path: Path) -> None:
    begin(Config(), parse(f"data:2,{REST}"), tmp_path / "run")
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", "0"), ("LOCAL_WORLD_SIZE", "1")):
        monkeypatch.setenv(name, value)
    said = manyhands("train", "--resume", tmp_path / "run", "-q")
    assert said.code == 2
    assert "plan data:2 has 2 ranks, 1 were started" in said.error


@pytest.mark.parametrize(
    ("plan", "words"),
    [("data:3", "plan data:3 has 3 ranks, 2 were started"), ("serial", "runs in one process, 2 were started")],
)
def test_numbers_that_do_not_fit(manyhands, monkeypatch, tmp_path: Path, plan: str, words: str) -> None:
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "0"), ("LOCAL_WORLD_SIZE", "2")):
        monkeypatch.setenv(name, value)
    said = manyhands(*ORDER, "--plan", plan, "--out", tmp_path / "run", "-q")
    assert said.code == 2
    assert words in said.error
    assert not (tmp_path / "run").exists()


def test_bad_input_that_the_first_rank_finds_ends_all(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()
    done = by("torchrun", *ORDER, "--plan", f"data:2,{REST}", "--out", tmp_path / "taken", "-q")
    assert done.returncode != 0
    assert f"{tmp_path / 'taken'}" in done.stderr
    assert [each.name for each in (tmp_path / "taken").iterdir()] == ["file"]
