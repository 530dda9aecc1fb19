"""`manyhands launch`."""

import time
from pathlib import Path
from typing import Annotated

import typer

from manyhands.cli import output
from manyhands.plan.spec import parse
from manyhands.train.user_script.launch import launch_script

# What is no option of ours belongs to the script.
SETTINGS = {"allow_extra_args": True, "ignore_unknown_options": True}


def launch(
    context: typer.Context,
    script: Annotated[Path, typer.Argument(help="A Python file that calls manyhands.parallelize.")],
    plan: Annotated[str, typer.Option("--plan", help="Plan words or a plan.toml: data:4, ddp:4, serial, plain.")],
    as_json: output.Json = False,
    quiet: output.Quiet = False,
) -> None:
    """Run your own training script on the ranks of a plan.

    The first rank's output is shown. Options of this command come before those of the script; after -- all are
    the script's: manyhands launch train.py --plan data:4 -- --plan mine --help
    """
    output.set_output(as_json, quiet)
    started = time.perf_counter()
    bound = launch_script(script, context.args, parse(plan))
    if output.wants_json():
        seconds = time.perf_counter() - started
        output.emit({"script": str(script), "plan": str(bound), "world": bound.world, "seconds": round(seconds, 3)})
