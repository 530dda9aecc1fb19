"""Group: the runs that differ in nothing but their seed, and what they are called among the others."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from manyhands.runs.run_folder import Run

SEED = "train.seed"
MACHINE = "machine"  # beside the keys of the config
MOST_LETTERS = 120  # of a label: it may come from anywhere


@dataclass(frozen=True)
class Group:
    """The runs of one case, and what the case is called."""

    label: str
    runs: tuple[Run, ...]


@dataclass(frozen=True)
class _Key:
    """What runs of one group have in common: a case or the words of a plan, and the settings that differ among all."""

    case: str
    named: bool  # whether `case` is the name of a case
    settings: tuple[tuple[str, str], ...]


def group(runs: Iterable[Run]) -> list[Group]:
    """Repeats together, in the order of their first run."""
    every = list(runs)
    settings = [flat(run) for run in every]
    differing = varied(settings)
    same: dict[_Key, list[Run]] = {}
    for run, mine in zip(every, settings, strict=True):
        case = run.record.get("case")
        told = tuple((name, mine.get(name, "none")) for name in differing)
        same.setdefault(_Key(case or run.plan, case is not None, told), []).append(run)
    return [Group(label, tuple(members)) for label, members in zip(_labels(list(same)), same.values(), strict=True)]


def flat(run: Run) -> dict[str, str]:
    """The settings of a run by their dotted names, apart from its seed, and the machine that it ran on."""
    told: Mapping[str, Any] = run.record.get("config") or {}
    values = {f"{part}.{name}": value for part, table in told.items() for name, value in (table or {}).items()}
    values[MACHINE] = run.record.get("machine_words")
    return {name: _said(value) for name, value in values.items() if name != SEED}


def varied(settings: Sequence[Mapping[str, str]]) -> list[str]:
    """The names of the settings that are not the same in all."""
    names = dict.fromkeys(name for each in settings for name in each)
    return [name for name in names if len({each.get(name) for each in settings}) > 1]


def _said(value: Any) -> str:
    if value is None:
        return "none"
    return value if isinstance(value, str) else json.dumps(value)


def _labels(keys: Sequence[_Key]) -> list[str]:
    """The case or the plan of each, with the settings that tell it from others of the same name."""
    plans = _plan_names([key.case for key in keys if not key.named])
    names = [key.case if key.named else plans[key.case] for key in keys]
    namesakes: dict[str, list[dict[str, str]]] = {}
    for name, key in zip(names, keys, strict=True):
        namesakes.setdefault(name, []).append(dict(key.settings))
    differing = {name: set(varied(settings)) for name, settings in namesakes.items()}
    return [
        _short(
            ", ".join([name, *(f"{setting}={value}" for setting, value in key.settings if setting in differing[name])])
        )
        for name, key in zip(names, keys, strict=True)
    ]


def _plan_names(plans: Sequence[str]) -> dict[str, str]:
    """The axes of each plan, with the options that tell it from the others with the same axes."""
    words = {plan: plan.split(",") for plan in plans}
    axes = {plan: ",".join(word for word in mine if "=" not in word) for plan, mine in words.items()}
    common: dict[str, set[str]] = {}
    for plan, mine in words.items():
        common[axes[plan]] = common.get(axes[plan], set(mine)) & set(mine)
    return {
        plan: ",".join([axes[plan], *(word for word in mine if "=" in word and word not in common[axes[plan]])])
        for plan, mine in words.items()
    }


def _short(label: str) -> str:
    return label if len(label) <= MOST_LETTERS else f"{label[: MOST_LETTERS - 1]}…"
