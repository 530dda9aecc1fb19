"""`manyhands compare`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from manyhands import api
from manyhands.cli import options, output
from manyhands.errors import ConfigError, PlanError
from manyhands.machine.detect import detect
from manyhands.plan.spec import parse
from manyhands.runs import run_folder
from manyhands.studies import compare as comparison
from manyhands.train.plan_constraints import resolve


def compare(
    model: options.Model,
    plan: Annotated[list[str], typer.Option("--plan", help="Plan words or a plan.toml; give two or more.")],
    data: options.Data = "digits",
    epochs: options.Epochs = None,
    batch_size: options.BatchSize = None,
    repeats: Annotated[str, typer.Option("--repeats", metavar="N", help="Trainings of each plan, interleaved.")] = "3",
    affinity: Annotated[
        list[str] | None,
        typer.Option("--affinity", metavar="CORES", help="Every plan on these cores: 0,1 or 0;1 or auto. Repeatable."),
    ] = None,
    seed: options.Seed = None,
    settings: options.Set = None,
    config: options.ConfigFile = None,
    out: Annotated[Path | None, typer.Option("--out", help="The folder for the runs; default: a new one.")] = None,
    as_json: output.Json = False,
    quiet: output.Quiet = False,
) -> int:
    """Train with several plans, like for like, and show them side by side."""
    output.set_output(as_json, quiet)
    order = options.make_config(model, data, epochs, batch_size, seed, settings, config)
    plans = [(words, api.resolved(parse(words), order)) for words in dict.fromkeys(plan)]
    if not repeats.isdecimal() or int(repeats) < 1:
        raise ConfigError(f"repeats={repeats}: a whole number, at least 1, is needed")
    for words, each in plans:
        if affinity and each.cores is not None:
            raise PlanError(f"--affinity {affinity[0]}: plan {words} names its cores itself; leave one of the two out")
    machine = detect()
    variants = comparison.by_affinity([each.strip() for each in affinity or []])
    for case in comparison.cases(order, plans, variants):  # refuse what cannot run before anything is trained
        resolve(case.plan, case.config, machine)
    folder = run_folder.new_folder(out, f"compare-{model.rpartition(':')[2]}")
    result = comparison.compare(order, plans, int(repeats), folder, variants)
    if output.wants_json():
        output.emit(result)
    else:
        show(result)
    return 1 if any(row["failed"] for row in result["rows"]) else 0


def show(result: dict[str, Any]) -> None:
    """The table of a comparison."""
    columns = ["plan", "samples/s", "speed-up", "training seconds", "test accuracy", "n"]
    sends = any(row["sent_bytes_per_step"] for row in result["rows"])
    late = any(row["staleness"] for row in result["rows"])
    columns += [*(["sent a step"] if sends else []), *(["staleness", "s an epoch", "s to 98 %"] if late else [])]
    more = [[*([output.sent(row)] if sends else []), *(_late(row) if late else [])] for row in result["rows"]]
    output.table(columns, [[*_row(row), *own] for row, own in zip(result["rows"], more, strict=True)])
    for row in result["rows"]:
        if row["failed"]:
            print(f"{row['plan']} failed: {row['failed']}")
        elif row["bound"] != row["plan"]:
            print(f"{row['plan']} ran as {row['bound']}")
    print(f"run folders: {result['out']}")


def _late(row: dict[str, Any]) -> list[str]:
    """By how many updates gradients came late, and what that did to the time."""
    told, times = row["staleness"], [row["epoch_seconds"], row["target_seconds"]]
    by = f"{told['mean']:.2f}, at most {told['max']:.0f}" if told else "–"
    return [by, *(f"{each['mean']:.2f} ± {each['std']:.2f}" if each else "–" for each in times)]


def _row(row: dict[str, Any]) -> list[str]:
    speed, seconds, accuracy = row["samples_per_s"], row["train_seconds"], row["test_accuracy"]
    if accuracy is None:
        return [row["plan"], "failed", "", "", "", "0"]
    return [
        row["plan"],
        f"{speed['mean']:,.0f} ± {speed['std']:,.0f}" if speed else "–",
        f"{row['speedup']:.2f}x" if row["speedup"] else "–",
        f"{seconds['mean']:.2f} ± {seconds['std']:.2f}",
        f"{100 * accuracy['mean']:.2f} ± {100 * accuracy['std']:.2f} %",
        str(row["n"]),
    ]
