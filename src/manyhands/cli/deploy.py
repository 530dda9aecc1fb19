"""`manyhands predict` and `manyhands export`: from a run to its use."""

from pathlib import Path
from typing import Annotated

import typer

from manyhands.cli import output
from manyhands.errors import InputError
from manyhands.runs import store


def predict(
    run: Annotated[Path, typer.Argument(help="A run's folder.")],
    files: Annotated[list[Path], typer.Argument(help="Images, text files (a line each) or CSV files (a row each).")],
    as_json: output.Json = False,
    quiet: output.Quiet = False,
) -> None:
    """Say the class of new files, and how sure the model is."""
    output.set_output(as_json, quiet)
    store.load(run)
    from manyhands.runs import predict as predicting  # torch comes in here

    found = predicting.predict(run, files)
    if output.wants_json():
        output.emit({"predictions": found})
        return
    output.table(
        ["file", "label", "probability"],
        [[each["file"], each["label"], f"{each['probability']:.3f}"] for each in found],
    )


def export(
    run: Annotated[Path, typer.Argument(help="A run's folder.")],
    onnx: Annotated[Path | None, typer.Option("--onnx", help="Write an ONNX file.")] = None,
    program: Annotated[Path | None, typer.Option("--torch", help="Write a torch.export program (.pt2).")] = None,
    as_json: output.Json = False,
    quiet: output.Quiet = False,
) -> None:
    """Write the model for deployment, checked on real samples."""
    output.set_output(as_json, quiet)
    if (onnx is None) == (program is None):
        raise InputError("say where to: --onnx FILE or --torch FILE, one of the two")
    store.load(run)
    from manyhands.runs import export as exporting  # torch comes in here

    path, form = (onnx, "onnx") if onnx is not None else (program, "torch")
    assert path is not None
    done = exporting.export(run, path, form)
    if output.wants_json():
        output.emit(done)
    else:
        print(f"{done['path']}: equal on {done['checked_samples']} samples within {done['max_difference']:.1e}")
