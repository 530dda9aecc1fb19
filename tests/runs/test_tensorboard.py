"""Event files, read back as TensorBoard reads them: every step once, whoever trained and however often it began."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from manyhands.api import fit
from manyhands.errors import MissingPackage, StorageError
from manyhands.runs import run_folder
from manyhands.runs.tensorboard import Events

PLAN = "serial,precision=fp32,layout=contiguous,compile=off"
DATA = ("--data", "synthetic:1x10x10,4", "--batch-size", 50, "--set", "data.size=1000")
EVERY_VALUE = {"scalars": 0, "tensors": 0}
TAGS = {
    "loss": "train/loss",
    "lr": "train/lr",
    "ms": "train/ms",
    "val_loss": "validation/loss",
    "val_accuracy": "validation/accuracy",
}


def read(folder: Path) -> EventAccumulator:
    return EventAccumulator(str(folder), size_guidance=EVERY_VALUE).Reload()


def scalars(events: EventAccumulator, tag: str) -> list[tuple[int, float]]:
    return [(each.step, each.value) for each in events.Scalars(tag)]


def told(run: run_folder.Run, key: str) -> list[tuple[int, Any]]:
    return [(each["step"], pytest.approx(each[key], rel=1e-6)) for each in run.metrics() if key in each]


def check_curves(run: run_folder.Run, folder: Path, steps: int) -> None:
    """The events say what metrics.jsonl says, and what the run came to."""
    events = read(folder)
    assert [step for step, _ in scalars(events, "train/loss")] == list(range(1, steps + 1))
    for key, tag in TAGS.items():
        assert scalars(events, tag) == told(run, key), tag
    assert run.result is not None
    assert scalars(events, "test/accuracy") == [(steps, pytest.approx(run.result["test_accuracy"]))]
    (order,) = events.Tensors("order")
    text = order.tensor_proto.string_val[0].decode()
    assert f"    plan = {run.plan}\n" in text  # with what the search has bound
    assert "    train.batch_size = 50\n" in text
    assert "_hparams_/session_start_info" in events.Tags()["tensors"]


def test_one_process(manyhands: Callable[..., Any], tmp_path: Path) -> None:
    said = manyhands("train", "mlp", *DATA, "--plan", PLAN, "--epochs", 2, "--out", tmp_path / "run", "--tensorboard")
    assert said.code == 0, said.err
    assert f"tensorboard --logdir {tmp_path / 'run' / 'tensorboard'}" in said.out
    check_curves(run_folder.load(tmp_path / "run"), tmp_path / "run" / "tensorboard", steps=38)


@pytest.mark.long
def test_of_several_ranks_the_leader_writes(manyhands: Callable[..., Any], tmp_path: Path) -> None:
    plan = "data:2,precision=fp32,layout=contiguous,compile=off,threads=1"
    said = manyhands("train", "mlp", *DATA, "--plan", plan, "--epochs", 1, "--out", tmp_path / "run", "--tensorboard")
    assert said.code == 0, said.err
    assert len(list((tmp_path / "run" / "tensorboard").iterdir())) == 1
    check_curves(run_folder.load(tmp_path / "run"), tmp_path / "run" / "tensorboard", steps=19)


SLOW = """
import time
from torch import nn
class Net(nn.Linear):
    def __init__(self):
        super().__init__(4, 2)
    def forward(self, x):
        time.sleep(0.02 * self.training)
        return super().forward(x)
"""


def steps_after_checkpoint(folder: Path) -> int:
    """How many of the steps on disk were done after the first epoch's checkpoint."""
    kept = [int(each.name.split("-")[1]) for each in folder.glob("checkpoints/step-*")]
    lines = list(run_folder.Run(folder, {}).metrics())
    return lines[-1]["step"] - max(kept) if kept and lines else 0


def test_a_killed_run_has_told_its_steps_and_resumed_it_tells_each_once(
    manyhands: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    folder, events = tmp_path / "run", tmp_path / "run" / "tensorboard"
    data = ("--data", "synthetic:4,2", "--batch-size", "50", "--set", "data.size=1500", "--epochs", "3")
    command = ["train", f"{tmp_path}/slow.py:Net", *data, "--plan", PLAN, "--out", folder, "--tensorboard", "-q"]
    with subprocess.Popen([sys.executable, "-m", "manyhands", *map(str, command)]) as process:
        deadline = time.monotonic() + 60
        while not steps_after_checkpoint(folder) and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    lost = steps_after_checkpoint(folder)
    assert 0 < lost < 29, "it was not killed in the middle of an epoch"
    before = scalars(read(events), "train/loss")
    assert len(before) % 29 == lost
    said = manyhands("train", "--resume", folder, "-q")
    assert said.code == 0, said.err
    assert len(list(events.iterdir())) == 2
    check_curves(run_folder.load(folder), events, steps=87)


def test_from_python(tmp_path: Path) -> None:
    more = {"data__size": 400, "log__tensorboard": True}
    run = fit("mlp", "synthetic:4,2", PLAN, epochs=1, batch_size=50, out=tmp_path / "run", **more)
    check_curves(run, run.folder / "tensorboard", steps=8)


def test_without_the_word_there_are_none(manyhands: Callable[..., Any], tmp_path: Path) -> None:
    said = manyhands("train", "mlp", *DATA, "--plan", PLAN, "--epochs", 1, "--out", tmp_path / "run")
    assert said.code == 0, said.err
    assert not (tmp_path / "run" / "tensorboard").exists()
    assert "tensorboard" not in said.out


def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "events").symlink_to("/dev/full")
    events = Events(tmp_path / "events")
    for finish in (events.flush, events.close):
        with pytest.raises(StorageError, match="no space left while writing"):
            finish()


@pytest.fixture
def absent(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine on which the package is not installed."""
    for name in [name for name in sys.modules if name.split(".")[0] == "tensorboard"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "tensorboard", None)


@pytest.mark.usefixtures("absent")
@pytest.mark.parametrize(
    "words",
    [
        ("train", "mlp", "--tensorboard", "--out", "run"),
        ("train", "mlp", "--set", "log.tensorboard=true", "--out", "run"),
        ("compare", "mlp", "--plan", "plain", "--set", "log.tensorboard=on", "--out", "run"),
        ("export", "old", "--csv", "a.csv", "--tensorboard", "events"),
        ("train", "--resume", "begun"),
    ],
    ids=" ".join,
)
def test_a_missing_package_is_told_before_anything_starts(
    manyhands: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("old", "begun"):
        Path(name).mkdir()
        run_folder.create(Path(name), {"plan_words": "serial", "config": {"log": {"tensorboard": name == "begun"}}})
    before = run_folder.load(Path("begun")).record
    said = manyhands(*words)
    assert said.code == 2
    assert "package tensorboard: pip install 'manyhands[tensorboard]'" in said.error
    assert sorted(each.name for each in tmp_path.iterdir()) == ["begun", "old"]
    assert run_folder.load(Path("begun")).record == before


@pytest.mark.usefixtures("absent")
def test_a_missing_package_is_told_to_python_too(tmp_path: Path) -> None:
    with pytest.raises(MissingPackage, match=r"manyhands\[tensorboard\]"):
        fit("mlp", "synthetic:4,2", PLAN, out=tmp_path / "run", log__tensorboard=True)
    assert not (tmp_path / "run").exists()
