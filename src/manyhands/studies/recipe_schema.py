"""Recipe schema: what a recipe's file may hold, so that a slip is told before anything is trained."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from manyhands.errors import ConfigError, choices
from manyhands.studies.claims import KINDS
from manyhands.studies.derived_metrics import COLUMNS

TEXTS = ("title", "source", "hardware", "differs", "plan", "options", "by", "design", "measure", "plot")
LISTS = {"columns": str, "grids": Mapping, "claims": Mapping, "published": Mapping}
OF_A_RUN = ("test_accuracy", "samples_per_s", "train_seconds")
# Of each kind of claim: what it needs, and of what it needs one.
NEEDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "ratio": ((), ("above", "below")),
    "peak": ((), ()),
    "differ": ((), ()),
    "all above": (("above",), ()),
    "lines rise": (("lines",), ()),
    "paired": (("axis", "these", "those"), ("above", "least")),
}
NUMBERS, MANY = ("above", "below", "least", "there"), ("of", "over", "these", "those", "lines")


def check_types(name: str, table: Mapping[str, Any]) -> None:
    """Every key is of its type, and all of it can be written down again."""
    said = f"recipe {name}:"
    for key in TEXTS:
        if not isinstance(table.get(key, ""), str):
            raise ConfigError(f"{said} {key}={table[key]!r}: words in quotes are needed")
    if "whole" in table and (not isinstance(table["whole"], int) or isinstance(table["whole"], bool)):
        raise ConfigError(f"{said} whole={table['whole']!r}: a whole number is needed")
    if not isinstance(table.get("crowds", True), bool):
        raise ConfigError(f"{said} crowds={table['crowds']!r}: true or false is needed")
    for key, kind in LISTS.items():
        words = "a list of names" if kind is str else f"tables such as [[{key}]]"
        found = table.get(key, [])
        if not isinstance(found, list) or not all(isinstance(each, kind) for each in found):
            raise ConfigError(f"{said} {key}={found!r}: {words} are needed")
    plans = table.get("plans", {})
    if not isinstance(plans, Mapping) or not all(isinstance(each, Mapping) for each in plans.values()):
        raise ConfigError(f"{said} plans is {plans!r}; tables such as [plans.mine] are needed")
    _check_values(said, "", table)


def _check_values(said: str, key: str, value: Any) -> None:
    if isinstance(value, Mapping):
        for name, each in value.items():
            _check_values(said, f"{key}.{name}".lstrip("."), each)
    elif isinstance(value, list):
        for each in value:
            _check_values(said, key, each)
    elif not isinstance(value, str | int | float) or (isinstance(value, float) and not math.isfinite(value)):
        raise ConfigError(f"{said} {key}={value}: words, a finite number, true or false are needed")


def check_told(name: str, recipe: Any) -> None:
    """What the table of results will have, and how claims are judged."""
    said = f"recipe {name}:"
    for column in recipe.columns:
        if column not in COLUMNS:
            raise ConfigError(f"{said} column '{column}': {choices(column, COLUMNS)}")
    measures = [*OF_A_RUN] if recipe.design == "optuna" else [*OF_A_RUN, *COLUMNS]
    _check_measure(said, recipe.measure, measures)
    for claim in recipe.claims:
        _check_claim(said, claim, [*OF_A_RUN, *COLUMNS])
    for figures in recipe.published:
        if not isinstance(figures.get("label"), str):
            raise ConfigError(f"{said} [[published]] {dict(figures)}: a label, that of its cell, is needed")


def _check_measure(said: str, measure: Any, known: Sequence[str]) -> None:
    if measure not in known:
        raise ConfigError(f"{said} measure '{measure}': {choices(str(measure), known)}")


def _check_claim(said: str, claim: Mapping[str, Any], measures: Sequence[str]) -> None:
    kind = str(claim.get("kind"))
    if kind not in KINDS:
        raise ConfigError(f"{said} claim kind '{kind}': {choices(kind, KINDS)}")
    needed, one_of = NEEDS[kind]
    for key in ("words", *needed):
        if key not in claim:
            raise ConfigError(f"{said} a claim of kind '{kind}' needs '{key}'")
    if one_of and not any(key in claim for key in one_of):
        raise ConfigError(f"{said} a claim of kind '{kind}' needs '{one_of[0]}' or '{one_of[1]}'")
    _check_measure(said, claim.get("measure"), measures)
    for key in NUMBERS:
        if isinstance(claim.get(key, 0), bool) or not isinstance(claim.get(key, 0), int | float):
            raise ConfigError(f"{said} claim {key}={claim[key]!r}: a number is needed")
    for key in MANY:
        if not isinstance(claim.get(key, []), list):
            raise ConfigError(f"{said} claim {key}={claim[key]!r}: a list is needed")
    where = claim.get("where", {})
    if not isinstance(where, Mapping) or not all(isinstance(each, list) for each in where.values()):
        raise ConfigError(f"{said} claim where={where!r}: axes with lists of their values are needed")


def check_range(said: str, key: str, values: Mapping[str, Any]) -> None:
    """What Optuna may choose from."""
    if values.keys() - {"low", "high", "log"} or not {"low", "high"} <= values.keys():
        raise ConfigError(f"{said} axis {key}={dict(values)}: low, high and log are allowed, the first two needed")
    low, high, log = values["low"], values["high"], values.get("log", False)
    numbers = all(isinstance(each, int | float) and not isinstance(each, bool) for each in (low, high))
    if not numbers or not isinstance(log, bool) or low > high or (log and low <= 0):
        need = "numbers, low not above high, and above 0 where log is true"
        raise ConfigError(f"{said} axis {key}={dict(values)}: {need}, are needed")
