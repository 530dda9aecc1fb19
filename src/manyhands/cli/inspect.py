"""`manyhands runs` and `manyhands show`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from manyhands.cli import options, output
from manyhands.cli.train import summary
from manyhands.config import Config, keys
from manyhands.errors import InputError
from manyhands.files import home
from manyhands.progress import say
from manyhands.report.data.history import Series, history, losses
from manyhands.report.data.selection import selected, value
from manyhands.report.sparkline import spark
from manyhands.runs import run_folder

NARROW, WIDE = 8, 30  # columns of a curve in a table of runs, and of one run's
CURVES = {
    "loss": "loss",
    "lr": "learning rate",
    "val_accuracy": "validation accuracy",
    "averaged_val_accuracy": "of averaged weights",
    "ms": "ms a step",
}
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


def show(run: options.Run, as_json: output.Json = False, quiet: output.Quiet = False) -> None:
    """Show one run: what it was, its curves, its result, and what each layer costs forward and backward."""
    output.set_output(as_json, quiet)
    found = run_folder.load(run)
    curves = history(found)
    if output.wants_json():
        numbers = {key: {"first": each.first, "last": each.last, "best": each.best} for key, each in curves.items()}
        output.emit({"run": str(found.folder), **found.record, "curves": numbers})
        return
    reason = f" ({found.record['error']})" if found.record.get("error") else ""
    print(output.plain(f"{found.name}: {found.status}{reason}"))
    output.table(["", found.name], [*_order(found), *(summary(found.result)[1:] if found.result else [])])
    if curves:
        output.table(["curve", "first step to last", "first", "last", "best"], _curve_rows(curves), folds=())
    if layers := found.record.get("layers"):
        output.table(["layer", "kind", "parameters", "forward ms", "backward ms"], layer_rows(layers))


def _order(run: run_folder.Run) -> list[tuple[str, str]]:
    """What was to be done, and where; a fact that is not known is left out."""
    facts = {
        "model": value(run, "model"),
        "parameters": f"{count:,}" if (count := run.record.get("parameters")) else None,
        "data": value(run, "data"),
        "case": value(run, "case"),
        "plan": run.plan,
        "machine": run.record.get("machine_words"),
        "command": run.record.get("command"),
    }
    return [(name, str(fact)) for name, fact in facts.items() if fact]


def _curve_rows(curves: dict[str, Series]) -> list[list[str]]:
    return [
        [
            CURVES[key],
            spark(each.values, WIDE),
            *(_shown(key, number) for number in (each.first, each.last, each.best)),
        ]
        for key, each in curves.items()
    ]


def _shown(key: str, number: float | None) -> str:
    if key.endswith("val_accuracy"):
        return output.percent(number)
    return "–" if number is None else f"{number:.4g}"


def layer_rows(layers: list[dict[str, Any]]) -> list[list[str]]:
    """A row a layer, and their sum: how much dearer is backward?"""
    rows = [
        [
            each["name"],
            each["kind"],
            f"{each['parameters']:,}",
            f"{each['forward_ms']:.2f}",
            f"{each['backward_ms']:.2f}",
        ]
        for each in layers
    ]
    forward, backward = (sum(each[key] for each in layers) for key in ("forward_ms", "backward_ms"))
    ratio = f"{backward / forward:.2f}x forward" if forward else ""
    return [
        *rows,
        [
            "all",
            ratio,
            f"{sum(each['parameters'] for each in layers):,}",
            f"{forward:.2f}",
            f"{backward:.2f}",
        ],
    ]
