"""`manyhands runs`: the runs below a folder, a line each."""

from pathlib import Path
from typing import Annotated, Any

import typer

from manyhands.cli import output
from manyhands.config import Config, keys
from manyhands.errors import InputError
from manyhands.files import home
from manyhands.progress import say
from manyhands.report.data.history import losses
from manyhands.report.data.selection import selected, value
from manyhands.report.sparkline import spark
from manyhands.runs import run_folder

NARROW, WIDE = 8, 30  # columns of a curve in a table of runs, and of one run's
FACTS = ("name", "model", "data", "case")


def runs(
    folder: Annotated[Path | None, typer.Argument(help="Where to look; default: your own runs.")] = None,
    filters: Annotated[
        list[str] | None,
        typer.Option(
            "--filter", metavar="WORD", help="model=mlp, accuracy>0.98, optim.lr=0.01 or any text. Repeatable."
        ),
    ] = None,
    sort: Annotated[str, typer.Option("--sort", metavar="KEY", help="created, name, speed, accuracy …")] = "created",
    reverse: Annotated[bool, typer.Option("--reverse", help="From the last to the first.")] = False,
    limit: Annotated[str | None, typer.Option("--limit", metavar="N", help="Only the first N.")] = None,
    as_json: output.Json = False,
    quiet: output.Quiet = False,
) -> None:
    """List runs, oldest first; --filter, --sort and --limit choose among them."""
    output.set_output(as_json, quiet)
    where = folder or home() / "runs"
    if folder is not None and not folder.is_dir():
        raise InputError(f"there is no folder {folder}: give one that holds runs")
    if limit is not None and not (limit.isdecimal() and int(limit)):
        raise InputError(f"--limit {limit}: a whole number, at least 1, is needed")
    found, damaged = run_folder.find_all(where)
    listed = selected(found, filters or [], sort, reverse, keys(Config()))[: int(limit) if limit else None]
    for path, reason in damaged:
        say(output.plain(f"left out, since its run.json is damaged: {path} ({' '.join(reason.split())})"))
    if output.wants_json():
        left_out = [{"run": str(path), "reason": reason} for path, reason in damaged]
        output.emit({"runs": [_facts(run) for run in listed], "damaged": left_out})
    elif listed:
        columns = ["run", "model", "data", "plan", "status", "loss", "samples/s", "accuracy"]
        output.table(columns, [_row(run) for run in listed], folds=("run", "data"))
    else:
        make_one = "make one with `manyhands train convnet`"
        print(f"none of the {len(found)} runs in {where} fits" if found else f"no runs in {where}: {make_one}")


def _row(run: run_folder.Run) -> list[str]:
    result = run.result or {}
    return [
        run.name,
        *(str(value(run, key) or "–") for key in ("model", "data")),
        run.plan.split(",")[0],
        run.status,
        spark(losses(run, most=8 * NARROW), NARROW),
        output.number(result.get("samples_per_s")),
        output.percent(result.get("test_accuracy")),
    ]


def _facts(run: run_folder.Run) -> dict[str, Any]:
    kept = ("status", "created", "updated", "plan_words", "error", "result")
    facts = {key: value(run, key) for key in FACTS}
    return {"run": str(run.folder), **facts, **{key: run.record.get(key) for key in kept}}
