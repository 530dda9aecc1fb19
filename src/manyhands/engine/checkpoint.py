"""Checkpoint: safetensors and JSON in a folder that is whole or absent; never a pickle.

checkpoints/
  step-00000100/   model.safetensors  optimizer.safetensors  state.json (step, epoch, checksums, whether it is the
                   best by validation so far), averaged.safetensors where weights are averaged
  best             names the best for people; a kill may leave it behind, so that only runs of before are read by it
"""

import errno
import hashlib
import json
import re
import shutil
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from manyhands.engine.average import Average
from manyhands.engine.step import Trainee
from manyhands.errors import UNREADABLE, RunError, StorageError
from manyhands.files import folder_aside, sha256, write_text
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


def save(
    folder: Path, trainee: Trainee, position: Position, *, keep: int, best: bool, average: Average | None = None
) -> None:
    """Write the checkpoint of this step, then remove all but the newest `keep` and the best.

    All ranks call it; the leader writes.
    """
    path = folder / f"step-{position.step:08d}"
    mean = average.weights() if average else {}
    weights = trainee.exchange.weights()
    tensors, rest = _flat(trainee.exchange.state())
    apart = _each_rank(trainee)
    if not trainee.team.leads:
        return
    if not folder.parent.is_dir():  # else it would be made again, and hold what nobody can resume from
        raise StorageError(f"{folder.parent} was removed while the run trained: start it again, with another --out")
    with folder_aside(path) as aside:
        aside.mkdir()
        files = dict(zip(TENSORS, (weights, {**tensors, **apart}), strict=True)) | ({AVERAGED: mean} if mean else {})
        for name, each in files.items():
            write(each, aside / name)
        state: dict[str, Any] = {
            "position": vars(position),
            "optimizer": rest,
            "averaged": average.count if average else 0,
            "best": best,
            "sha256": {name: sha256(aside / name) for name in files},
        }
        state["sha256"][STATE] = _sum_of(state)
        (aside / STATE).write_text(json.dumps(state))
    named = best_of(folder)
    if best:
        write_text(folder / "best", path.name)
    for old in listing(folder)[:-keep]:
        if old != named:
            shutil.rmtree(old)


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


def _sum_of(state: dict[str, Any]) -> str:
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
        if own not in (None, _sum_of(state)) or not sums.keys() >= set(TENSORS):
            return False
        _position(state), state["optimizer"]["scalars"], state["optimizer"]["groups"]  # where no checksum holds these
        return all(name in FILES and sha256(path / name) == each for name, each in sums.items())
    except UNREADABLE:
        return False


def _position(state: dict[str, Any]) -> Position:
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


def load_model(path: Path, name: str = TENSORS[0]) -> dict[str, Tensor]:
    """The model's tensors, or with their name the averaged ones."""
    try:
        tensors: dict[str, Tensor] = load_file(path / name)
    except (OSError, SafetensorError) as error:
        raise RunError(f"cannot read the checkpoint {path}: {error}") from None
    return tensors


def restore(path: Path, trainee: Trainee, average: Average | None = None) -> Position:
    """Put model, optimizer and random states back, and say where the training stood."""
    state = json.loads((path / STATE).read_text())
    if average and (count := state.get("averaged")):
        average.load(load_model(path, AVERAGED), count)
    trainee.exchange.load_weights(load_model(path))
    tensors = load_file(path / TENSORS[1])
    trainee.exchange.load_state(_nested(tensors, state["optimizer"]))
    _set_rank(tensors, trainee)  # last: a rank may have an optimizer of its own
    trainee.team.meet()
    return _position(state)


def write(tensors: dict[str, Tensor], path: Path) -> None:
    """A safetensors file; a disk that refuses it raises the system's own error."""
    try:
        save_file(_owned(tensors), path)
    except SafetensorError as error:
        # The library hides the system's error number in its text.
        number = re.search(r"os error (\d+)", str(error))
        raise OSError(int(number[1]) if number else errno.EIO, str(error)) from error


def _owned(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Contiguous copies on the host; safetensors refuses tensors that share memory."""
    return {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}


def _flat(state: dict[str, Any]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """An optimizer's state as named tensors, and the rest as JSON values."""
    tensors: dict[str, Tensor] = {}
    scalars: dict[str, Any] = {}
    for number, values in state["state"].items():
        for key, value in values.items():
            (tensors if isinstance(value, Tensor) else scalars)[f"state.{number}.{key}"] = value
    groups = [
        {key: float(value) if isinstance(value, Tensor) else value for key, value in group.items()}
        for group in state["param_groups"]
    ]
    return tensors, {"scalars": scalars, "groups": groups}


def _nested(tensors: dict[str, Tensor], rest: dict[str, Any]) -> dict[str, Any]:
    """The inverse of `_flat`."""
    state: dict[int, dict[str, Any]] = {}
    for name, value in {**tensors, **rest["scalars"]}.items():
        if name.startswith("state."):
            _, number, key = name.split(".", 2)
            state.setdefault(int(number), {})[key] = value
    return {"state": state, "param_groups": rest["groups"]}


def _each_rank(trainee: Trainee) -> dict[str, Tensor]:
    """What differs between ranks: random states, for dropout goes its own way on each, and what each has alone."""
    rank = trainee.team.rank
    mine = {f"random.cpu.{rank}": torch.get_rng_state()}
    if torch.cuda.is_available():
        mine[f"random.cuda.{rank}"] = torch.cuda.get_rng_state()
    mine |= {f"own.{rank}.{name}": tensor for name, tensor in trainee.exchange.rank_state().items()}
    return {name: state for states in trainee.team.gathered(mine) for name, state in states.items()}


def _set_rank(tensors: dict[str, Tensor], trainee: Trainee) -> None:
    """A rank that the checkpoint does not know, of a larger team than wrote it, keeps the state of its seed."""
    rank = trainee.team.rank
    if (state := tensors.get(f"random.cpu.{rank}")) is not None:
        torch.set_rng_state(state)
    if (state := tensors.get(f"random.cuda.{rank}")) is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(state)
    mark = f"own.{rank}."
    trainee.exchange.load_rank_state(
        {name[len(mark) :]: each for name, each in tensors.items() if name.startswith(mark)}
    )
