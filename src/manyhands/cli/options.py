"""The options that training commands share, and how they become a config."""

from pathlib import Path
from typing import Annotated

import typer

from manyhands.runs.config import Config, read, with_settings, with_values

Model = Annotated[str, typer.Argument(help="A zoo name, file.py:factory or package.module:factory.")]
Data = Annotated[str, typer.Option("--data", help="A known set, a path, or synthetic:3x64x64,10.")]
# Numbers arrive as texts: the config reads them, and its errors name the key and the value.
Epochs = Annotated[str | None, typer.Option("--epochs", metavar="N", help="Passes over the training set (default 3).")]
BatchSize = Annotated[
    str | None, typer.Option("--batch-size", metavar="N", help="Of all ranks together (default 256).")
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
    }
    config = with_values(config, {key: value for key, value in named.items() if value is not None})
    return with_settings(config, settings or [])
