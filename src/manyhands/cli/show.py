"""`manyhands show`: one run."""

from typing import Any

from manyhands.cli import options, output
from manyhands.cli.runs import WIDE
from manyhands.cli.train import summary
from manyhands.report.data.history import Series, history
from manyhands.report.data.selection import value
from manyhands.report.sparkline import spark
from manyhands.runs import run_folder

CURVES = {
    "loss": "loss",
    "lr": "learning rate",
    "val_accuracy": "validation accuracy",
    "averaged_val_accuracy": "of averaged weights",
    "ms": "ms a step",
}


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
