"""The zoo: every model that has a name, what it accepts, and how it is built."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import nn

from manyhands.errors import ModelError, choices
from manyhands.models.alexnet import alexnet
from manyhands.models.convnet import convnet
from manyhands.models.locally_connected import locally
from manyhands.models.mlp import mlp
from manyhands.models.recurrent_text import text
from manyhands.models.resnet import resnet18, resnet50
from manyhands.models.stacking import stacking
from manyhands.models.transformer import transformer
from manyhands.models.treenet import treenet
from manyhands.models.user_factory import load

USER_LR = 1e-3


@dataclass(frozen=True)
class Options:
    """The `model.*` keys of the configuration; None is the family's own default.

    The docstring of each family says what `width` multiplies and what `depth` counts.
    """

    width: float = 1.0
    depth: int | None = None
    dropout: float | None = None
    activation: str | None = None  # sigmoid | tanh | relu | leaky_relu
    batch_norm: bool | None = None
    head: str | None = None  # alexnet: 6x6
    cell: str | None = None  # text: rnn | gru | lstm | bag


@dataclass(frozen=True)
class Shapes:
    """What the data looks like, and what a user's factory may take by keyword.

    shape: (C, H, W) for images; (L,) token ids when there is a vocabulary; (F,) for tables.
    """

    classes: int
    shape: tuple[int, ...]
    vocabulary: int | None = None

    @property
    def kind(self) -> str:
        """image, text or table."""
        if self.vocabulary is not None:
            return "text"
        return "image" if len(self.shape) == 3 else "table"


@dataclass(frozen=True)
class Entry:
    """A family: `make(classes, shape, vocabulary, **options)`, whose keyword-only names are its options."""

    make: Callable[..., nn.Module]
    kinds: tuple[str, ...]
    lr: float  # with adam
    least_depth: int = 1
    in_turns: bool = False  # has `begin_epoch`, and learns part by part

    @property
    def options(self) -> list[str]:
        """The names of the options that this family has."""
        parameters = inspect.signature(self.make).parameters.values()
        return [each.name for each in parameters if each.kind is each.KEYWORD_ONLY]


ZOO: dict[str, Entry] = {
    "mlp": Entry(mlp, ("image", "table"), lr=1e-3, least_depth=0),
    "convnet": Entry(convnet, ("image",), lr=1e-3),
    "alexnet": Entry(alexnet, ("image",), lr=1e-4),
    "resnet18": Entry(resnet18, ("image",), lr=1e-3),
    "resnet50": Entry(resnet50, ("image",), lr=1e-3),
    "locally": Entry(locally, ("image",), lr=1e-3),
    "treenet": Entry(treenet, ("image",), lr=1e-3),
    "stacking": Entry(stacking, ("image", "table"), lr=1e-3, in_turns=True),
    "text": Entry(text, ("text",), lr=3e-3),
    "transformer": Entry(transformer, ("image", "text"), lr=1e-3),
}


def names() -> list[str]:
    """Every name in the zoo."""
    return list(ZOO)


def default_lr(name: str) -> float:
    """The learning rate that suits the model with adam."""
    return USER_LR if ":" in name else _entry(name).lr


def learns_in_turns(name: str) -> bool:
    """Whether a zoo model changes from epoch to epoch which of its weights learn."""
    return name in ZOO and ZOO[name].in_turns


def build(name: str, shapes: Shapes, options: Options = Options(), seed: int = 0) -> nn.Module:  # noqa: B008
    """Build a zoo model, `file.py:factory` or `package.module:factory`, its weights drawn from `seed`.

    The global random state is left as it was.
    """
    chosen = _chosen(options)
    with torch.random.fork_rng(devices=[]):
        # torch.manual_seed would reseed the GPUs too, and those are not put back.
        torch.default_generator.manual_seed(seed)
        if ":" in name:
            if chosen:
                raise ModelError(f"model.{next(iter(chosen))} is for zoo models: {name} sets its own; leave it out")
            return load(name, {field.name: getattr(shapes, field.name) for field in fields(Shapes)})
        entry = _entry(name)
        _check_kind(name, entry, shapes)
        _check_options(name, entry, chosen)
        return entry.make(shapes.classes, shapes.shape, shapes.vocabulary, **chosen)


def _entry(name: str) -> Entry:
    if name not in ZOO:
        raise ModelError(f"unknown model '{name}': {choices(name, ZOO)}; your own: file.py:factory")
    return ZOO[name]


def _chosen(options: Options) -> dict[str, Any]:
    """The options that were set away from their defaults."""
    values = {field.name: (getattr(options, field.name), field.default) for field in fields(Options)}
    return {key: value for key, (value, default) in values.items() if value != default}


def _check_kind(name: str, entry: Entry, shapes: Shapes) -> None:
    if shapes.classes < 1:
        raise ModelError(f"{shapes.classes} classes cannot be told apart: the data must have at least 1")
    if not shapes.shape or min(shapes.shape) < 1 or (shapes.kind != "image" and len(shapes.shape) != 1):
        raise ModelError(f"samples of shape {shapes.shape} fit no model: (C, H, W), (tokens,) or (features,) do")
    if shapes.kind not in entry.kinds:
        fitting = ", ".join(each for each in ZOO if shapes.kind in ZOO[each].kinds)
        raise ModelError(f"{name} takes {' or '.join(entry.kinds)} data, this is {shapes.kind}: use one of {fitting}")


def _check_options(name: str, entry: Entry, chosen: dict[str, Any]) -> None:
    allowed = entry.options
    for key, value in chosen.items():
        if key not in allowed:
            raise ModelError(f"{name} has no model.{key} (given: {value}): it has {', '.join(allowed)}")
    if not 0 < chosen.get("width", 1.0) < float("inf"):
        raise ModelError(f"model.width={chosen['width']} cannot be built: it must be above 0; 1 is the usual size")
    if not 0 <= chosen.get("dropout", 0.0) < 1:
        raise ModelError(f"model.dropout={chosen['dropout']} is no share: it must be from 0 up to, not including, 1")
    if chosen.get("depth", entry.least_depth) < entry.least_depth:
        raise ModelError(f"model.depth={chosen['depth']} is too small: {name} needs at least {entry.least_depth}")
