"""Commands in worlds of their own."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from faults.witness import Command


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Callable[..., Command]]:
    """Starts commands, each in a new folder that anybody may write to, and clears up behind them."""
    begun: list[Command] = []

    def start(*arguments: object, before: tuple[str, ...] = (), **environment: str) -> Command:
        folder = tmp_path / f"world-{len(begun)}"
        folder.mkdir()
        folder.chmod(0o777)
        begun.append(Command(folder, arguments, before, environment))
        return begun[-1]

    yield start
    for each in begun:
        each.clear()
