"""`manyhands export`: a trained model or a run's records in the formats of other programs."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from manyhands.cli import options, output, outputs
from manyhands.errors import InputError
from manyhands.runs import export_metrics, run_folder, tensorboard


def export(
    run: options.Run,
    onnx: Annotated[
        Path | None, typer.Option("--onnx", parser=outputs.file_name, help="Write the model as an ONNX file.")
    ] = None,
    program: Annotated[
        Path | None,
        typer.Option("--torch", parser=outputs.file_name, help="Write it as a torch.export program (.pt2)."),
    ] = None,
    csv: Annotated[
        Path | None, typer.Option("--csv", parser=outputs.file_name, help="Write the metrics as CSV, a row a step.")
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option("--trace", parser=outputs.file_name, help="Write the timeline for Chrome or Perfetto."),
    ] = None,
    events: Annotated[
        Path | None, typer.Option("--tensorboard", metavar="DIR", help="Write an event file into this folder.")
    ] = None,
    averaged: options.Averaged = False,
    changed_code: options.ChangedCode = False,
    as_json: output.Json = False,
    quiet: output.Quiet = False,
) -> None:
    """Write the model for deployment, checked on real samples, or the run's curves and timeline for other programs."""
    output.set_output(as_json, quiet)
    asked = {"csv": csv, "trace": trace, "tensorboard": events, "onnx": onnx, "torch": program}
    paths = {form: path for form, path in asked.items() if path is not None}
    if not paths:
        raise InputError(
            "say what to write: --onnx FILE or --torch FILE (the model), --csv FILE (metrics), "
            "--trace FILE (timeline), --tensorboard DIR"
        )
    if averaged and not (onnx or program):
        raise InputError("--averaged is for the model: say --onnx FILE or --torch FILE, or leave it out")
    found = run_folder.load(run)
    files = {f"--{form}": path for form, path in paths.items() if form != "tensorboard"}
    outputs.check(files, outputs.inputs_of_runs([run]), events)
    if events is not None:
        tensorboard.check()
    done = [{"form": form, **_write(form, averaged, changed_code)(found, path)} for form, path in paths.items()]
    if output.wants_json():
        first = next((each for each in done if each["form"] in ("onnx", "torch")), done[0])
        output.emit({**first, "exports": done})
        return
    for each in done:
        print(f"{each['path']}: {_words(each)}")


def _write(form: str, averaged: bool, changed_code: bool) -> Callable[[run_folder.Run, Path], dict[str, Any]]:
    """What writes a form; torch comes in for the model alone."""
    if form == "csv":
        return export_metrics.write_csv
    if form == "trace":
        return export_metrics.write_trace
    if form == "tensorboard":
        return export_metrics.write_events
    from manyhands.inference import export as exporting

    return lambda run, path: exporting.export(run.folder, path, form, averaged, changed_code=changed_code)


def _words(done: dict[str, Any]) -> str:
    if "checked_samples" in done:
        return f"equal on {done['checked_samples']} samples within {done['max_difference']:.1e}"
    return f"{done['rows']:,} rows" if "rows" in done else f"{done['events']:,} events"
