"""Weights: the model of a config, and the tensors with which it begins or goes on."""

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from manyhands.config import Config, ModelConfig
from manyhands.data.dataset import Dataset
from manyhands.data.normalize import Normalize
from manyhands.data.schema import Schema
from manyhands.engine.loop import checkpoint, checkpoint_folder
from manyhands.errors import ModelError
from manyhands.models import warm_start, zoo
from manyhands.runs import run_folder


def build_model(config: Config, schema: Schema, told: Callable[[str], None] = lambda line: None) -> nn.Module:
    """The model with its first weights: drawn from the seed, or taken from elsewhere, and frozen where asked."""
    chosen = config.model
    shapes = zoo.Shapes(len(schema.classes), tuple(schema.shape), len(schema.vocabulary) or None)
    model = zoo.build(chosen.name, shapes, options_of(chosen), config.train.seed)
    if chosen.init_from:
        taken = warm_start.init_from(model, load_tensors(chosen.init_from))
        told(f"{chosen.init_from}: {len(taken.loaded)} tensors loaded")
        for name, why in taken.skipped:
            told(f"  not loaded: {name} ({why})")
    if chosen.freeze:
        told(f"frozen: {', '.join(warm_start.freeze(model, chosen.freeze))}")
    return model


def options_of(chosen: ModelConfig) -> zoo.Options:
    return zoo.Options(**{each.name: getattr(chosen, each.name) for each in fields(zoo.Options)})


def load_tensors(source: str) -> dict[str, Tensor]:
    """The tensors of a safetensors file, or of a run's best or newest checkpoint."""
    path = Path(source)
    if path.is_dir():
        return checkpoint.load_model(best_checkpoint(run_folder.load(path)))
    try:
        tensors: dict[str, Tensor] = load_file(path)
    except FileNotFoundError:
        raise ModelError(f"--init-from {source}: there is no such run or file") from None
    except (SafetensorError, OSError) as error:
        raise ModelError(f"--init-from {source} is not a run and not a safetensors file ({error})") from None
    return tensors


def best_checkpoint(run: run_folder.Run) -> Path:
    """The best intact checkpoint of a run, else the newest."""
    best = checkpoint_folder.best_of(run.checkpoints)
    if best is not None and checkpoint_folder.is_whole(best):
        return best
    newest = checkpoint_folder.newest_whole(run.checkpoints)
    if newest is None:
        raise ModelError(f"run {run.folder} has no intact checkpoint: train it again")
    return newest


def averaged_weights(run: run_folder.Run) -> dict[str, Tensor]:
    """The mean of a run's weights as it was last, which has seen most of them."""
    newest = checkpoint_folder.newest_whole(run.checkpoints)
    if newest is None or not (newest / checkpoint_folder.AVERAGED).exists():
        raise ModelError(
            f"run {run.folder} has no averaged weights: train with --set train.ema=0.99 or --set train.swa=0.25"
        )
    return checkpoint.load_model(newest, checkpoint_folder.AVERAGED)


def check_outputs(model: nn.Module, name: str, dataset: Dataset) -> None:
    """Two samples through the model: it must give one number for each class."""
    rows = torch.from_numpy(dataset.train.inputs[dataset.train.index[:2]])
    inputs = Normalize(dataset.schema, contiguous=True)(rows)  # as every model takes them
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            outputs = model(inputs)
    except Exception as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelError(f"model {name} does not take samples of shape {dataset.schema.shape}: {reason}") from error
    finally:
        model.train(training)
    wanted = (len(rows), len(dataset.schema.classes))
    if not isinstance(outputs, Tensor) or tuple(outputs.shape) != wanted:
        got = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
        raise ModelError(
            f"model {name} gives {got} for {len(rows)} samples, the data needs {wanted}: "
            f"forward must give one tensor of (batch, classes); a factory may take classes={wanted[1]}"
        )
