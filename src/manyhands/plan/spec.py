"""Spec: `data:2,precision=bf16` on the command line, and plan files."""

from pathlib import Path
from typing import Any

from manyhands.errors import PlanError, choices
from manyhands.files import read_toml, write_text
from manyhands.plan.axis import parse_axis
from manyhands.plan.options import OPTIONS
from manyhands.plan.plan import Plan, from_table, to_table


def parse(text: str) -> Plan:
    """A plan from words, or from a file when `text` names one.

    >>> str(parse("serial,precision=bf16"))
    'serial,precision=bf16'
    """
    if text.endswith(".toml") or "/" in text:
        return read(Path(text))
    words = [word.strip() for word in text.split(",")]
    axes = tuple(parse_axis(word) for word in words if "=" not in word)
    options: dict[str, Any] = {}
    for word in words:
        if "=" in word:
            name, _, value = word.partition("=")
            if name in options:
                raise PlanError(f"plan '{text}' says {name} twice: say it once")
            options[name] = _value(name, value)
    return Plan(axes=axes, **options)


def _value(name: str, text: str) -> str | int:
    if name not in OPTIONS:
        raise PlanError(f"unknown plan option '{name}': {choices(name, OPTIONS)}")
    if isinstance(OPTIONS[name], int):
        if not text.isdecimal():
            raise PlanError(f"plan option {name}={text}: a whole number, at least {OPTIONS[name]}, is allowed")
        return int(text)
    return text


def read(path: Path) -> Plan:
    """A plan from a TOML file."""
    table = read_toml(path, "plan", PlanError, "give an existing one, or words such as serial")
    return from_table(table, str(path))


def write(plan: Plan, path: Path) -> None:
    """Write a plan as a TOML file."""
    import tomli_w  # here, so that training works where only this small package is missing

    write_text(path, tomli_w.dumps(to_table(plan)))
