"""`manyhands average`: several models made one."""

from pathlib import Path
from typing import Annotated

import typer

from manyhands.cli import options, output, outputs
from manyhands.errors import ConfigError

Runs = Annotated[list[Path], typer.Argument(parser=options.run_folder, metavar="RUN…", help=options.RUN_HELP)]


def average(
    runs: Runs,
    out: Annotated[
        Path, typer.Option("-o", "--out", parser=outputs.file_name, metavar="FILE", help="A safetensors file.")
    ],
    last: Annotated[
        str | None,
        typer.Option("--last", metavar="N", help="Checkpoints of each run; default: all of one run, one of several."),
    ] = None,
    as_json: output.Json = False,
    quiet: output.Quiet = False,
) -> None:
    """Write the mean of the weights of a run's last checkpoints, or of several runs that began alike."""
    output.set_output(as_json, quiet)
    if last is not None and not (last.isdecimal() and int(last)):
        raise ConfigError(f"--last {last}: a whole number, at least 1, is needed")
    outputs.check({"-o": out}, outputs.inputs_of_runs(runs))
    from manyhands.inference import weight_average as averaging  # torch comes in here

    made = averaging.average(runs, int(last) if last else None, out)
    if output.wants_json():
        output.emit(made)
        return
    lines = [[row["weights"], output.percent(row["test_accuracy"])] for row in made["rows"]]
    output.table(["weights", "test accuracy"], lines)
    print(f"{made['path']}: to go on from it, train with --init-from {made['path']}")
