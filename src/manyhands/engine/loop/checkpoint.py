"""Checkpoint: safetensors and JSON in a folder that is whole or absent; never a pickle.

checkpoints/
  step-00000100/   model.safetensors  optimizer.safetensors  state.json (step, epoch, checksums, whether it is the
                   best by validation so far), averaged.safetensors where weights are averaged
  best             names the best for people; a kill may leave it behind, so that only runs of before are read by it
"""

import errno
import json
import re
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from manyhands.engine.loop.checkpoint_folder import (
    AVERAGED,
    STATE,
    TENSORS,
    Position,
    best_of,
    listing,
    position_of,
    sum_of,
)
from manyhands.engine.loop.context import TrainContext
from manyhands.engine.loop.optimizer_state import flat, nested
from manyhands.engine.loop.weight_averaging import Average
from manyhands.errors import RunError, StorageError
from manyhands.files import folder_aside, sha256, write_text


def save(
    folder: Path, context: TrainContext, position: Position, *, keep: int, best: bool, average: Average | None = None
) -> None:
    """Write the checkpoint of this step, then remove all but the newest `keep` and the best.

    All ranks call it; the leader writes.
    """
    path = folder / f"step-{position.step:08d}"
    mean = average.weights() if average else {}
    weights = context.strategy.weights()
    tensors, rest = flat(context.strategy.state())
    apart = _each_rank(context)
    if not context.team.is_leader:
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
        state["sha256"][STATE] = sum_of(state)
        (aside / STATE).write_text(json.dumps(state))
    named = best_of(folder)
    if best:
        write_text(folder / "best", path.name)
    for old in listing(folder)[:-keep]:
        if old != named:
            shutil.rmtree(old)


def load_model(path: Path, name: str = TENSORS[0]) -> dict[str, Tensor]:
    """The model's tensors, or with their name the averaged ones."""
    try:
        tensors: dict[str, Tensor] = load_file(path / name)
    except (OSError, SafetensorError) as error:
        raise RunError(f"cannot read the checkpoint {path}: {error}") from None
    return tensors


def restore(path: Path, context: TrainContext, average: Average | None = None) -> Position:
    """Put model, optimizer and random states back, and say where the training stood."""
    state = json.loads((path / STATE).read_text())
    if average and (count := state.get("averaged")):
        average.load(load_model(path, AVERAGED), count)
    context.strategy.load_weights(load_model(path))
    tensors = load_file(path / TENSORS[1])
    context.strategy.load_state(nested(tensors, state["optimizer"]))
    _set_rank(tensors, context)  # last: a rank may have an optimizer of its own
    context.team.barrier()
    return position_of(state)


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


def _each_rank(context: TrainContext) -> dict[str, Tensor]:
    """What differs between ranks: random states, for dropout goes its own way on each, and what each has alone."""
    rank = context.team.rank
    mine = {f"random.cpu.{rank}": torch.get_rng_state()}
    if torch.cuda.is_available():
        mine[f"random.cuda.{rank}"] = torch.cuda.get_rng_state()
    mine |= {f"own.{rank}.{name}": tensor for name, tensor in context.strategy.rank_state().items()}
    return {name: state for states in context.team.all_gather_json(mine) for name, state in states.items()}


def _set_rank(tensors: dict[str, Tensor], context: TrainContext) -> None:
    """A rank that the checkpoint does not know, of a larger team than wrote it, keeps the state of its seed."""
    rank = context.team.rank
    if (state := tensors.get(f"random.cpu.{rank}")) is not None:
        torch.set_rng_state(state)
    if (state := tensors.get(f"random.cuda.{rank}")) is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(state)
    mark = f"own.{rank}."
    context.strategy.load_rank_state(
        {name[len(mark) :]: each for name, each in tensors.items() if name.startswith(mark)}
    )
