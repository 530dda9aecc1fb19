"""`manyhands predict`: what a run's model says of new files."""

from pathlib import Path
from typing import Annotated

import typer

from manyhands.cli import options, output
from manyhands.runs import run_folder


def predict(
    run: options.Run,
    files: Annotated[list[Path], typer.Argument(help="Images, text files (a line each) or CSV files (a row each).")],
    averaged: options.Averaged = False,
    changed_code: options.ChangedCode = False,
    as_json: output.Json = False,
    quiet: output.Quiet = False,
) -> None:
    """Say the class of new files, and how sure the model is."""
    output.set_output(as_json, quiet)
    run_folder.load(run)
    from manyhands.inference import predict as predicting  # torch comes in here

    found = predicting.predict(run, files, averaged, changed_code=changed_code)
    if output.wants_json():
        output.emit({"predictions": found})
        return
    output.table(
        ["file", "label", "probability"],
        [[each["file"], each["label"], f"{each['probability']:.3f}"] for each in found],
    )
