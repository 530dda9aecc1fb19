"""Bars and log lines, always on standard error: standard output belongs to the results."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

_quiet = False
_log: Path | None = None


def set_quiet(quiet: bool) -> None:
    """Silence bars and log lines (errors are printed by the command line itself)."""
    global _quiet
    _quiet = quiet


def say(line: str) -> None:
    """One log line for the user, and for the log of the run that goes on."""
    if _log is not None:
        with _log.open("a") as file:
            file.write(f"{line}\n")
    if not _quiet:
        print(line, file=sys.stderr, flush=True)


@contextmanager
def logged_to(path: Path) -> Iterator[None]:
    """Append what is said in this block to a file as well."""
    global _log
    before, _log = _log, path
    try:
        yield
    finally:
        _log = before


class Bar(Protocol):
    """What a long job tells of its progress."""

    def advance(self, amount: float = 1, note: str = "") -> None: ...


class _Rate(ProgressColumn):
    def __init__(self, unit: str) -> None:
        super().__init__()
        self.unit = unit

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(_rate(speed, self.unit) if speed else "", style="cyan")


def _rate(speed: float, unit: str) -> str:
    """A second, or, of what is slow, a minute."""
    return f"{speed:,.0f} {unit}/s" if speed >= 1 else f"{60 * speed:.1f} {unit}/min"


class _RichBar:
    def __init__(self, progress: Progress, title: str, total: float) -> None:
        self.progress, self.task = progress, progress.add_task(title, total=total, note="")

    def advance(self, amount: float = 1, note: str = "") -> None:
        self.progress.update(self.task, advance=amount, note=note)


class _LineBar:
    """For logs and pipes: a line at most every ten seconds, none for what ends sooner."""

    def __init__(self, title: str, total: float, unit: str) -> None:
        self.title, self.total, self.unit, self.done = title, total, unit, 0.0
        self.begun = self.told = time.monotonic()

    def advance(self, amount: float = 1, note: str = "") -> None:
        self.done += amount
        now = time.monotonic()
        if now - self.told < 10:
            return
        self.told = now
        rate = self.done / (now - self.begun)
        left = max(self.total - self.done, 0) / rate if rate else 0
        done = f"{self.done:,.0f} of {self.total:,.0f}, {_rate(rate, self.unit)}"
        say(f"{self.title}: {done}, {left:.0f} s left {note}".rstrip())


class _NoBar:
    def advance(self, amount: float = 1, note: str = "") -> None:
        pass


@contextmanager
def bar(title: str, total: float, unit: str = "samples") -> Iterator[Bar]:
    """Show a bar with rate and time left while the block runs."""
    if _quiet:
        yield _NoBar()
        return
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _LineBar(title, total, unit)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        _Rate(unit),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        yield _RichBar(progress, title, total)


@contextmanager
def looking(look: Callable[[], None], pause: float) -> Iterator[None]:
    """Have a thread look now and then at how far others are, until the block ends."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(pause):
            look()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
