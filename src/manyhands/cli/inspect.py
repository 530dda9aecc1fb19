"""`manyhands runs` and `manyhands show`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from manyhands.cli import output
from manyhands.cli.train import summary
from manyhands.errors import InputError
from manyhands.files import home
from manyhands.runs import store


def runs(
    folder: Annotated[Path | None, typer.Argument(help="Where to look; default: your own runs.")] = None,
    as_json: output.Json = False,
    quiet: output.Quiet = False,
) -> None:
    """List runs, oldest first."""
    output.set_output(as_json, quiet)
    where = folder or home() / "runs"
    if folder is not None and not folder.is_dir():
        raise InputError(f"there is no folder {folder}: give one that holds runs")
    found = store.find(where)
    if output.wants_json():
        output.emit({"runs": [_facts(run) for run in found]})
        return
    if not found:
        print(f"no runs in {where}: make one with `manyhands train convnet`")
        return
    output.table(
        ["run", "model", "data", "plan", "status", "samples/s", "accuracy"],
        [
            [
                run.name,
                run.record["config"]["model"]["name"],
                run.record["config"]["data"]["name"],
                run.plan.split(",")[0],
                run.status,
                output.number((run.result or {}).get("samples_per_s")),
                output.percent((run.result or {}).get("test_accuracy")),
            ]
            for run in found
        ],
    )


def _facts(run: store.Run) -> dict[str, Any]:
    kept = ("status", "created", "updated", "plan_words", "error", "result")
    return {"run": str(run.folder), **{key: run.record.get(key) for key in kept}}


def show(
    run: Annotated[Path, typer.Argument(help="A run's folder.")],
    as_json: output.Json = False,
    quiet: output.Quiet = False,
) -> None:
    """Show one run: its result and what each layer costs forward and backward."""
    output.set_output(as_json, quiet)
    found = store.load(run)
    if output.wants_json():
        output.emit({"run": str(found.folder), **found.record})
        return
    print(f"{found.name}: {found.status}" + (f" ({found.record['error']})" if found.record.get("error") else ""))
    if found.result:
        output.table(["", found.name], [[key, value] for key, value in summary(found.result)])
    if layers := found.record.get("layers"):
        output.table(["layer", "kind", "parameters", "forward ms", "backward ms"], layer_rows(layers))


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
