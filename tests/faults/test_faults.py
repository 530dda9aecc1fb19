"""Kill, damage and fill the disk: nothing is lost but the steps since the last checkpoint."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from manyhands.runs import run_folder

PLAN = "serial,precision=fp32,layout=contiguous,compile=off"
ARGUMENTS = ("train", "mlp", "--data", "synthetic:1x10x10,4", "--plan", PLAN, "--batch-size", "50", "--epochs", "4")
EVERY = ("--set", "data.size=4000", "--set", "checkpoint.every_steps=20", "--set", "model.dropout=0.5")


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "manyhands", *map(str, arguments)]


def curve(folder: Path) -> list[tuple[int, float]]:
    """Step and loss of every step, or validation."""
    return [(each["step"], each.get("loss", each.get("val_loss"))) for each in run_folder.load(folder).metrics()]


def wait_for(condition: Any, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


@pytest.fixture
def undisturbed(manyhands, tmp_path: Path) -> list[tuple[int, float]]:
    said = manyhands(*ARGUMENTS, *EVERY, "--out", tmp_path / "whole", "-q")
    assert said.code == 0, said.err
    return curve(tmp_path / "whole")


def start_and_stop(folder: Path, how: signal.Signals) -> int:
    """Start a training, stop it after its second checkpoint, and give the exit code."""
    with subprocess.Popen(command(*ARGUMENTS, *EVERY, "--out", folder), stderr=subprocess.DEVNULL) as process:
        wait_for(lambda: len(list(folder.glob("checkpoints/step-*"))) >= 2)
        process.send_signal(how)
        return process.wait(30)


def test_kill_and_resume_equals_an_undisturbed_run(manyhands, undisturbed, tmp_path: Path) -> None:
    folder = tmp_path / "killed"
    assert start_and_stop(folder, signal.SIGKILL) == -signal.SIGKILL
    assert run_folder.load(folder).status == "running"
    said = manyhands("train", "--resume", folder, "--json")
    assert said.code == 0, said.err
    assert "resuming from step-" in said.err
    assert curve(folder) == undisturbed
    assert said.json["final_loss"] == undisturbed[-2][1]


def test_ctrl_c_is_told_apart(tmp_path: Path) -> None:
    assert start_and_stop(tmp_path / "run", signal.SIGINT) == 130
    assert run_folder.load(tmp_path / "run").status == "interrupted"


def test_a_corrupt_checkpoint_falls_back_to_the_one_before(manyhands, undisturbed, tmp_path: Path) -> None:
    folder = tmp_path / "killed"
    start_and_stop(folder, signal.SIGKILL)
    older, newest = sorted(folder.glob("checkpoints/step-*"))[-2:]
    tensors = newest / "model.safetensors"
    content = bytearray(tensors.read_bytes())
    content[-1] ^= 1  # a single bit
    tensors.write_bytes(content)
    said = manyhands("train", "--resume", folder)
    assert said.code == 0, said.err
    assert f"checkpoint {newest.name} is damaged: falling back to the one before" in said.err
    assert f"resuming from {older.name}" in said.err
    assert curve(folder) == undisturbed


def test_a_run_with_no_intact_checkpoint_begins_again(manyhands, undisturbed, tmp_path: Path) -> None:
    folder = tmp_path / "killed"
    start_and_stop(folder, signal.SIGKILL)
    for path in folder.glob("checkpoints/step-*"):
        (path / "state.json").write_text("{")
    said = manyhands("train", "--resume", folder)
    assert said.code == 0, said.err
    assert "starting from the beginning" in said.err
    assert curve(folder) == undisturbed


@pytest.mark.parametrize("patience", [(), ("--set", "train.patience=1", "--set", "optim.lr=1e-12")])
def test_a_kill_after_the_last_step(manyhands, tmp_path: Path, patience: tuple[str, ...]) -> None:
    """All steps are done, the test is not: resuming gives the same result as if nothing had happened."""
    said = manyhands(*ARGUMENTS, *EVERY, *patience, "--out", tmp_path / "run", "--json")
    assert said.code == 0, said.err
    before = curve(tmp_path / "run")
    run_folder.load(tmp_path / "run").update(status="running", result=None)
    again = manyhands("train", "--resume", tmp_path / "run", "--json")
    assert again.code == 0, again.err
    same = ("final_loss", "test_accuracy", "test_loss", "val_accuracy", "steps", "stopped_early", "weights")
    assert {key: again.json[key] for key in same} == {key: said.json[key] for key in same}
    assert curve(tmp_path / "run") == before
    assert again.json["seconds"]["train"] >= said.json["seconds"]["train"] * 0.5  # of both sessions


def test_damaged_and_half_written_checkpoints_do_not_stay(manyhands, undisturbed, tmp_path: Path) -> None:
    folder = tmp_path / "killed"
    start_and_stop(folder, signal.SIGKILL)
    newest = sorted(folder.glob("checkpoints/step-*"))[-1]
    (newest / "state.json").write_text("{")
    (folder / "checkpoints" / ".step-00000099.1.tmp").mkdir()
    assert manyhands("train", "--resume", folder).code == 0
    left = [path.name for path in (folder / "checkpoints").iterdir()]
    assert not [name for name in left if name.startswith(".")]
    assert curve(folder) == undisturbed


def test_a_finished_run_is_not_resumed(manyhands, undisturbed, tmp_path: Path) -> None:
    said = manyhands("train", "--resume", tmp_path / "whole")
    assert said.code == 2
    assert "has finished" in said.error


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 6 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if made.returncode != 0:
        pytest.skip("mounting a tmpfs needs root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk(manyhands, small_disk: Path) -> None:
    """Checkpoints of 3 MB do not all fit: one line, and the whole ones stay usable."""
    wide = ("--set", "model.width=2", "--set", "checkpoint.keep=9")
    said = manyhands(*ARGUMENTS, *EVERY, *wide, "--out", small_disk / "run", "-q")
    assert said.code == 2
    assert "no space left while writing" in said.error
    assert str(small_disk) in said.error
    kept = list((small_disk / "run" / "checkpoints").iterdir())
    assert kept
    assert all(json.loads((path / "state.json").read_text()) for path in kept if path.name.startswith("step-"))
    assert not [path for path in kept if path.name.startswith(".")]


def test_a_full_disk_for_data(manyhands, small_disk: Path, monkeypatch) -> None:
    monkeypatch.setenv("MANYHANDS_HOME", str(small_disk / "home"))
    said = manyhands("data", "info", "digits", "-q")
    assert said.code == 2
    assert "no space left" in said.error
    whole = small_disk / "home" / "checksums"  # what is there is whole
    left = [path for path in (small_disk / "home").rglob("*") if path.is_file() and path.stat().st_size > 0]
    left = [path for path in left if path.parent != whole]
    assert left == []


def test_ctrl_c_in_compare_leaves_no_process(tmp_path: Path) -> None:
    arguments = ("compare", *ARGUMENTS[1:], *EVERY, "--epochs", 400, "--repeats", 1, "--out", tmp_path / "c")
    with subprocess.Popen(command(*arguments), stderr=subprocess.DEVNULL) as process:
        wait_for(lambda: list(tmp_path.glob("c/*/metrics.jsonl")))
        (child,) = children(process.pid)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
    wait_for(lambda: not Path(f"/proc/{child}").exists(), 10)


def children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.long
def test_a_killed_cell_is_a_failed_row(tmp_path: Path) -> None:
    arguments = (
        "compare",
        *ARGUMENTS[1:],
        *EVERY,
        "--plan",
        "plain",
        "--repeats",
        1,
        "--out",
        tmp_path / "c",
        "--json",
    )
    with subprocess.Popen(command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        wait_for(lambda: list(tmp_path.glob("c/0-*/metrics.jsonl")))
        os.kill(children(process.pid)[0], signal.SIGKILL)
        out, _ = process.communicate(timeout=120)
    first, second = json.loads(out)["rows"]
    assert process.returncode == 1
    assert "exit code -9" in first["failed"]
    assert second["failed"] is None
    shutil.rmtree(tmp_path / "c")
