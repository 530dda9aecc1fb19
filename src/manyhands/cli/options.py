"""The arguments and options that commands share: how a run is named, and how a config comes together."""

from pathlib import Path
from typing import Annotated

import typer

from manyhands.config import Config, read, with_settings, with_values
from manyhands.errors import ConfigError, InputError
from manyhands.files import home
from manyhands.runs import run_folder as store
from manyhands.runs import tensorboard

MOST_NAMED = 5  # runs in the one line of an error


def run_folder(text: str) -> Path:
    """The folder of a run: a path, or a run of your own by its name, by a beginning that no other has, or as `last`."""
    path, own = Path(text), home() / "runs"
    if not text or path.exists():
        return path
    if (own / text).exists():
        return own / text
    if text == "last":
        found = store.find(own)
        if not found:
            raise InputError(f"there is no last run: {own} has none; make one with `manyhands train convnet`")
        return found[-1].folder
    names = _beginning(own, text)
    if len(names) > 1:
        some = ", ".join(names[:MOST_NAMED]) + (" …" if len(names) > MOST_NAMED else "")
        raise InputError(f"'{text}' begins the names of {len(names)} runs: {some}; give more of the name")
    return own / names[0] if names else path


def _beginning(own: Path, text: str) -> list[str]:
    """The runs whose names begin with a text; those inside a comparison or a study only where no other does."""
    for depth in ("*", "*/*"):
        runs = [each.parent.relative_to(own) for each in own.glob(f"{depth}/run.json")]
        if found := sorted(str(run) for run in runs if str(run).startswith(text) or run.name.startswith(text)):
            return found
    return []


RUN_HELP = "A run's folder, or of your own runs the name, its beginning, or last."
Run = Annotated[Path, typer.Argument(parser=run_folder, metavar="RUN", help=RUN_HELP)]
Averaged = Annotated[bool, typer.Option("--averaged", help="The mean of the weights that train.ema or train.swa kept.")]
ChangedCode = Annotated[
    bool, typer.Option("--changed-code", help="Though the code of the model is not that of the run any more.")
]
Model = Annotated[str, typer.Argument(help="A zoo name, file.py:factory or package.module:factory.")]
Data = Annotated[str, typer.Option("--data", help="A known set, a path, or synthetic:3x64x64,10.")]
# Numbers arrive as texts: the config reads them, and its errors name the key and the value.
Epochs = Annotated[str | None, typer.Option("--epochs", metavar="N", help="Passes over the training set (default 3).")]
BatchSize = Annotated[
    str | None, typer.Option("--batch-size", metavar="N", help="Of all ranks together (default 256); train: or auto.")
]
Seed = Annotated[str | None, typer.Option("--seed", metavar="N", help="Of weights, order and dropout (default 0).")]
Set = Annotated[list[str] | None, typer.Option("--set", help="Any config key: --set optim.lr=0.01. May be repeated.")]
ConfigFile = Annotated[Path | None, typer.Option("--config", help="A TOML file with config sections.")]
InitFrom = Annotated[str | None, typer.Option("--init-from", help="A run or a safetensors file to take weights from.")]
Freeze = Annotated[list[str] | None, typer.Option("--freeze", help="Parameters that stay as they are: features.*")]


def make_config(
    model: str | None,
    data: str | None,
    epochs: str | None,
    batch_size: str | None,
    seed: str | None,
    settings: list[str] | None,
    config_file: Path | None = None,
    init_from: str | None = None,
    freeze: list[str] | None = None,
    with_tensorboard: bool = False,
    finds_batch: bool = False,
) -> Config:
    """The file first, then the named options, then --set."""
    config = read(config_file) if config_file else Config()
    named = {
        "model.name": model,
        "data.name": data,
        "train.epochs": epochs,
        "train.batch_size": batch_size,
        "train.seed": seed,
        "model.init_from": init_from,
        "model.freeze": freeze or None,
        "log.tensorboard": with_tensorboard or None,
    }
    config = with_values(config, {key: value for key, value in named.items() if value is not None})
    config = with_settings(config, settings or [])
    if config.train.batch_auto and not finds_batch:
        raise ConfigError(
            "train.batch_size=auto is for `manyhands train`: give a number, as `manyhands tune batch-size` finds it"
        )
    if config.log.tensorboard:
        tensorboard.check()
    return config
