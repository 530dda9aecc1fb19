"""`manyhands --version`, and the options that stand before a command."""

from typing import Annotated

import typer

from manyhands.cli import output
from manyhands.errors import InputError
from manyhands.runs.environment import versions


def tell(wanted: bool) -> None:
    """The versions that decide what a run does, and no command."""
    if not wanted:
        return
    found = versions()
    if output.wants_json():
        output.emit(found)
    else:
        others = ", ".join(f"{name} {version}" for name, version in found.items() if name != "manyhands")
        print(f"manyhands {found.get('manyhands')} ({others})")
    raise typer.Exit


def options(
    version: Annotated[
        bool, typer.Option("--version", callback=tell, is_eager=True, help="Show the version and stop.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", hidden=True)] = False,
) -> None:
    if as_json:
        raise InputError("--json stands behind the command: manyhands runs --json")
