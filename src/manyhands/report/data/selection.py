"""Selection: which runs are listed, by what they say of themselves, and in which order."""

import fnmatch
import math
import operator
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from manyhands.errors import InputError, choices
from manyhands.runs.run_folder import Run

# The short names of what run.json holds, and where it does.
TEXTS = {
    "name": "",
    "created": "created",
    "status": "status",
    "model": "config.model.name",
    "data": "config.data.name",
    "plan": "plan_words",
    "case": "case",
}
NUMBERS = {
    "accuracy": "result.test_accuracy",
    "val_accuracy": "result.val_accuracy",
    "loss": "result.final_loss",
    "speed": "result.samples_per_s",
    "samples_per_s": "result.samples_per_s",
    "step_ms": "result.measured_step_ms",
    "seconds": "result.seconds.total",
    "train_seconds": "result.seconds.train",
    "memory_mb": "result.peak_memory_mb",
    "steps": "result.steps",
    "world": "result.world",
    "parameters": "parameters",
}
KEYS = TEXTS | NUMBERS

WORD = re.compile(r"([a-z_]+(?:\.[a-z_]+)*)\s*(>=|<=|!=|=|>|<)\s*(.*)", re.DOTALL)
ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}

Value = str | float | bool | None
Condition = Callable[[Run], bool]


def selected(
    runs: Iterable[Run],
    filters: Sequence[str] = (),
    sort: str = "created",
    reverse: bool = False,
    config_keys: Collection[str] = (),
) -> list[Run]:
    """The runs of which every filter holds, sorted; those that do not have the key come last either way."""
    conditions = [condition(word, config_keys) for word in filters]
    check_key(sort, "--sort", config_keys)
    kept = [run for run in runs if all(holds(run) for holds in conditions)]
    known = [run for run in kept if value(run, sort) is not None]
    known.sort(key=lambda run: _rank(value(run, sort)), reverse=reverse)
    return known + [run for run in kept if value(run, sort) is None]


def check_key(key: str, where: str, config_keys: Collection[str]) -> None:
    """Refuse a name that no run has."""
    if key not in KEYS and key not in config_keys:
        dotted = "." in key
        others = "" if dotted else ", or a key of the config such as optim.lr"
        raise InputError(f"{where}: unknown key '{key}': {choices(key, config_keys if dotted else KEYS)}{others}")


def value(run: Run, key: str) -> Value:
    """What a run says under a key; None where it says nothing."""
    if key == "name":
        return run.name
    found: Any = run.record
    for name in KEYS.get(key, f"config.{key}").split("."):
        found = found.get(name) if isinstance(found, dict) else None
    if isinstance(found, list):
        return ",".join(map(str, found)) or None
    if isinstance(found, float) and not math.isfinite(found):
        return None
    return found if isinstance(found, str | float | int) else None


def _rank(found: Value) -> tuple[bool, Any]:
    """Numbers before texts: a config key may hold either."""
    return isinstance(found, str), found


def condition(word: str, config_keys: Collection[str]) -> Condition:
    """What a filter asks of a run: `key=value`, a comparison, or a text that stands anywhere in it."""
    match = WORD.fullmatch(word)
    if match is None:
        return lambda run: word.casefold() in _told(run)
    key, sign, wanted = match.groups()
    check_key(key, f"--filter {word}", config_keys)
    if sign in ORDERS:
        return _compared(word, key, sign, wanted)
    if key in NUMBERS:
        _number(word, wanted)
    same = _Same(key, wanted)
    return same if sign == "=" else lambda run: not same(run)


def _compared(word: str, key: str, sign: str, wanted: str) -> Condition:
    if key in TEXTS and key != "created":
        raise InputError(f"--filter {word}: {key} is a text, which goes with = or !=")
    limit: Any = wanted if key == "created" else _number(word, wanted)

    def holds(run: Run) -> bool:
        found = value(run, key)
        return isinstance(found, str) == isinstance(limit, str) and found is not None and ORDERS[sign](found, limit)

    return holds


def _number(word: str, wanted: str) -> float:
    try:
        return float(wanted)
    except ValueError:
        raise InputError(f"--filter {word}: '{wanted}' is no number; write for example accuracy>0.98") from None


@dataclass(frozen=True)
class _Same:
    """Whether a run has a value: a number, a text with * for anything, or some words of its plan."""

    key: str
    wanted: str

    def __call__(self, run: Run) -> bool:
        found = value(run, self.key)
        if self.key == "plan":
            return set(self.wanted.split(",")) <= set(str(found).split(","))
        if isinstance(found, str):
            return fnmatch.fnmatchcase(found.casefold(), self.wanted.casefold())
        if found is None or isinstance(found, bool):
            return str(found).casefold() == self.wanted.casefold()
        try:
            return found == float(self.wanted)
        except ValueError:
            return False


def _told(run: Run) -> str:
    """All texts and numbers in which a word is looked for."""
    keys = ("status", "plan_words", "case", "error", "command", "machine_words")
    config = (each for section in (run.record.get("config") or {}).values() for each in (section or {}).values())
    return "\n".join(map(str, (run.name, *map(run.record.get, keys), *config))).casefold()
