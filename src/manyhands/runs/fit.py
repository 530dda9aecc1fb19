"""Fit: the whole training from Python, with a model that a function of the caller's builds."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from manyhands import api
from manyhands.config import Config, with_values
from manyhands.errors import ModelError
from manyhands.plan.plan import Plan
from manyhands.plan.words import parse
from manyhands.runs import auto, run_folder


def fit(
    model: str | Callable[..., Any],
    data: str = "digits",
    plan: str | Plan = "serial",
    epochs: int = 3,
    batch_size: int | str = 256,
    seed: int = 0,
    out: str | Path | None = None,
    **settings: Any,
) -> run_folder.Run:
    """Train, and give the finished run; its `result` is what `manyhands train --json` prints.

    `model` is a zoo name or a function at the top level of a module. Further settings are config keys with
    a double underscore for the dot: `fit("mlp", optim__lr=0.01)`.
    """
    config = _config(model, data, batch_size, {"train.epochs": epochs, "train.seed": seed}, settings)
    chosen = parse(plan) if isinstance(plan, str) else plan
    start = auto.train if auto.is_auto(chosen) else api.train_new
    return start(config, chosen, Path(out) if out is not None else None)


def find_plan(
    model: str | Callable[..., Any], data: str = "digits", batch_size: int = 256, plan: str = "auto", **settings: Any
) -> Plan:
    """The fastest plan for this machine, searched and measured; `plan` may fix some of it: `auto,precision=fp32`."""
    return auto.resolved(parse(plan), _config(model, data, batch_size, {}, settings))


def _config(
    model: str | Callable[..., Any], data: str, batch_size: int | str, named: dict[str, Any], settings: dict[str, Any]
) -> Config:
    keys = {key.replace("__", ".", 1): value for key, value in settings.items()}
    name = model if isinstance(model, str) else _path_of(model)
    return with_values(
        Config(), {"model.name": name, "data.name": data, "train.batch_size": batch_size, **named, **keys}
    )


def _path_of(factory: Callable[..., Any]) -> str:
    """How another process, or a later `predict`, finds the same function again."""
    name = getattr(factory, "__qualname__", "")
    file = getattr(getattr(factory, "__code__", None), "co_filename", "")
    if not name.isidentifier() or not Path(file).is_file():
        raise ModelError(f"model {factory!r} cannot be found again by name: give a function at the top level of a file")
    return f"{Path(file).resolve()}:{name}"
