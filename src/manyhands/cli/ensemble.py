"""`manyhands ensemble`: the accuracy of several runs together."""

from pathlib import Path
from typing import Annotated

import typer

from manyhands.cli import output
from manyhands.cli.average import Runs
from manyhands.runs import run_folder


def ensemble(
    runs: Runs,
    by: Annotated[
        str, typer.Option("--by", metavar="WAY", help="mean (of probabilities) or vote: which counts.")
    ] = "mean",
    as_json: output.Json = False,
    quiet: output.Quiet = False,
) -> None:
    """Ask independently trained models together, and score them beside each alone."""
    output.set_output(as_json, quiet)
    for run in runs:
        run_folder.load(run)
    from manyhands.inference import ensemble as ensembles  # torch comes in here

    made = ensembles.ensemble(runs, by)
    if output.wants_json():
        output.emit(made)
        return
    lines = [[Path(row["run"]).name, row["model"], output.percent(row["test_accuracy"])] for row in made["rows"]]
    members = made["member_accuracy"]
    together = [
        ["one of them, on average", "", f"{100 * members['mean']:.2f} ± {100 * members['std']:.2f} %"],
        ["all, by the mean of probabilities", "", output.percent(made["mean_accuracy"])],
        ["all, by vote", "", output.percent(made["vote_accuracy"])],
    ]
    output.table(["", "model", "test accuracy"], [*lines, *together])
