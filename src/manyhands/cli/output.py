"""Output: results on standard output as a table or as one JSON object, and the options that every command has."""

import json
import math
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from io import TextIOWrapper
from typing import IO, Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from manyhands.errors import InputError
from manyhands.progress import set_quiet

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no log lines.")]

_json = False
_result: IO[str] | None = None  # the true standard output
_python = sys.stdout


def set_output(as_json: bool, quiet: bool) -> None:
    """Remember how the command was asked to speak; called first by every command."""
    global _json, _result, _python
    _json = as_json
    set_quiet(quiet)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal without Unicode shows ? for a curve
    if as_json and _result is None:
        # The object is alone on standard output: what a user's model prints goes to standard error.
        try:
            _result = os.fdopen(os.dup(1), "w")
        except OSError:
            _result = open(os.devnull, "w")  # noqa: SIM115, it stays open as standard output does
            raise InputError(
                "standard output is closed, where --json prints: send it to a file, or leave it out"
            ) from None
        sys.stdout.flush()
        os.dup2(2, 1)
        sys.stdout, _python = sys.stderr, sys.stdout


def give_back_output() -> None:
    """Undo `set_output`, for a process that runs several commands."""
    global _json, _result
    if _result is not None:
        os.dup2(_result.fileno(), 1)
        _result.close()
        sys.stdout = _python
    _json, _result = False, None
    set_quiet(False)


def wants_json() -> bool:
    return _json


def emit(value: Mapping[str, Any]) -> None:
    """The one JSON object of this command."""
    print(json.dumps(finite(value), allow_nan=False), file=_result, flush=True)


def finite(value: Any) -> Any:
    """The same with null for numbers that JSON does not have; a run's files may hold them."""
    if isinstance(value, Mapping):
        return {key: finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    title: str | None = None,
    folds: Collection[str] | None = None,
) -> None:
    """A table for people; `folds` are the columns that may be broken where the terminal is narrow (None: all)."""
    shown = Table(title=title, title_justify="left", header_style="bold")
    if folds is not None:  # the others need the room that lines would take
        shown.box, shown.show_edge, shown.padding = box.SIMPLE_HEAD, False, (0, 1, 0, 0)
    for number, column in enumerate(columns):
        whole = folds is not None and column not in folds
        shown.add_column(column, justify="left" if number == 0 else "right", overflow="fold", no_wrap=whole)
    for row in rows:
        shown.add_row(*map(plain, row))
    Console(markup=False, emoji=False).print(shown)


def plain(text: str) -> str:
    """Without what a terminal would obey: names of runs and values of configs may come from anybody."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def fail(message: str, exit_code: int) -> int:
    """One clear line; with --json the same as an object."""
    line = " ".join(message.split())
    with suppress(OSError, ValueError, AttributeError):  # nobody may be there to hear it
        print(f"error: {line}", file=sys.stderr, flush=True)
    if _json:
        try:
            emit({"error": line, "exit_code": exit_code})
        except OSError:
            _give_up()
    return exit_code


def _give_up() -> None:
    """Let what standard output would not take go, else Python says at the end what has been said."""
    global _result
    if _result is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), _result.fileno())


def sent(row: Mapping[str, Any]) -> str:
    """What a rank sends of its gradients in a step, and how many times fewer bytes that are for compression."""
    if row["sent_bytes_per_step"] is None:
        return "–"
    fewer = row["compression_ratio"]
    return f"{row['sent_bytes_per_step'] / 1e6:,.3f} MB" + (f" (1/{fewer:.1f})" if fewer > 1.01 else "")


def percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.2f} %"


def number(value: float | None, digits: int = 0) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"
