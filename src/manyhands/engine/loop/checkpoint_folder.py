"""Checkpoint folder: which checkpoints a run has, which is best and which are whole; old ones are removed."""

import hashlib
import json
import re
import shutil
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from manyhands.errors import UNREADABLE
from manyhands.files import sha256
from manyhands.progress import say

TENSORS = ("model.safetensors", "optimizer.safetensors")
AVERAGED = "averaged.safetensors"
FILES = {*TENSORS, AVERAGED}
STATE = "state.json"
NAME = re.compile(r"step-\d+")


@dataclass
class Position:
    """Where a training stands: all that the loop needs, beside the tensors, to go on as if never stopped."""

    step: int = 0  # steps done
    epoch: int = 0  # epochs done
    batch: int = 0  # batches done in the current epoch
    best_accuracy: float = -1.0
    bad_epochs: int = 0  # epochs since the best
    last_loss: float = 0.0
    val_loss: float | None = None  # of the last validation
    val_accuracy: float | None = None
    averaged_val_accuracy: float | None = None  # of the mean of the weights
    seconds: dict[str, float] = field(default_factory=dict)  # spent so far, by phase


def listing(folder: Path) -> list[Path]:
    """The checkpoints, oldest first."""
    return sorted(each for each in folder.glob("step-*") if NAME.fullmatch(each.name) and each.is_dir())


def best_of(folder: Path) -> Path | None:
    """The checkpoint with the best validation accuracy, if there is one."""
    found = listing(folder)
    for path in reversed(found):
        with suppress(*UNREADABLE):
            if json.loads((path / STATE).read_text())["best"]:
                return path
    try:
        name = (folder / "best").read_text().strip()
    except (OSError, ValueError):
        return None
    return next((each for each in found if each.name == name), None)


def sum_of(state: dict[str, Any]) -> str:
    """Of all that state.json says but this."""
    sums = {name: each for name, each in state["sha256"].items() if name != STATE}
    return hashlib.sha256(json.dumps({**state, "sha256": sums}, sort_keys=True).encode()).hexdigest()


def forget_after(folder: Path, path: Path | None) -> None:
    """Remove what is newer than `path` (all, if it is None), and what a kill left half-written."""
    for each in listing(folder):
        if path is None or each.name > path.name:
            shutil.rmtree(each)
    for each in folder.glob(".step-*"):
        shutil.rmtree(each)


def is_whole(path: Path) -> bool:
    """Whether every file is there with its checksum."""
    try:
        state = json.loads((path / STATE).read_text())
        sums = state["sha256"]
        own = sums.pop(STATE, None)  # those of before have none
        if own not in (None, sum_of(state)) or not sums.keys() >= set(TENSORS):
            return False
        position_of(state), state["optimizer"]["scalars"], state["optimizer"]["groups"]  # where no checksum holds these
        return all(name in FILES and sha256(path / name) == each for name, each in sums.items())
    except UNREADABLE:
        return False


def position_of(state: dict[str, Any]) -> Position:
    """Where it stood; TypeError or its like where this is none."""
    position = Position(**state["position"])
    counts = (position.step, position.epoch, position.batch, position.bad_epochs)
    values = [position.best_accuracy, position.last_loss, *position.seconds.values()]
    values += [each for each in (position.val_loss, position.val_accuracy, position.averaged_val_accuracy) if each]
    whole = all(type(each) is int and each >= 0 for each in counts)
    if not whole or not all(type(each) in (int, float) for each in values):
        raise TypeError("numbers of another kind")
    return position


def newest_whole(folder: Path) -> Path | None:
    """The newest checkpoint that is intact; says so when it passes over a damaged one."""
    for path in reversed(listing(folder)):
        if is_whole(path):
            return path
        say(f"checkpoint {path.name} is damaged: falling back to the one before")
    return None
