"""`manyhands tune batch-size | lr | workers`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from manyhands.cli import options, output, outputs
from manyhands.errors import ConfigError, InputError
from manyhands.files import make_folder, write_bytes, write_json
from manyhands.plan.spec import parse

app = typer.Typer(
    help="Batch size, learning rate and loader processes, found by measuring.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

PlanWords = Annotated[str, typer.Option("--plan", help="Plan words or a plan.toml.")]


@app.command("batch-size")
def batch_size(
    model: options.Model,
    data: options.Data = "digits",
    plan: PlanWords = "serial",
    target: Annotated[
        str | None, typer.Option("--target", metavar="ACC", help="A validation accuracy, as 0.98; default: measured.")
    ] = None,
    sizes: Annotated[
        str | None, typer.Option("--sizes", metavar="64,128,…", help="Batch sizes; default: doubled from 64 on.")
    ] = None,
    budget: Annotated[str, typer.Option("--budget", metavar="TRIALS", help="Trainings of each size.")] = "6",
    epochs: Annotated[
        str, typer.Option("--epochs", metavar="E", help="Passes after which a training has not reached the target.")
    ] = "10",
    seed: options.Seed = None,
    settings: options.Set = None,
    config: options.ConfigFile = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", parser=outputs.file_name, help="A file for the table, as JSON.")
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", parser=outputs.file_name, metavar="F.png", help="A picture of steps and time."),
    ] = None,
    as_json: output.Json = False,
    quiet: output.Quiet = False,
) -> None:
    """Find the batch size that reaches a target accuracy soonest, the rate tuned anew for each."""
    output.set_output(as_json, quiet)
    order = options.make_config(model, data, epochs, None, seed, settings, config)
    if plot is not None and plot.suffix != ".png":
        raise InputError(f"--plot {plot}: the picture is a PNG; choose a name that ends in .png")
    from manyhands.tune.batch_size import Wish, tune

    wanted = Wish(_number("--target", target), _sizes(sizes), _count("--budget", budget))
    words = parse(plan)
    outputs.check({"-o": out, "--plot": plot}, outputs.inputs_of(order, config))
    for path in (out, plot):
        if path is not None:  # before hours of work that would be lost
            make_folder(path.absolute().parent)
    result = tune(order, words, wanted)
    if out is not None:
        write_json(out, output.finite(result))
    if plot is not None:
        from manyhands.report.charts.batch_size import charts
        from manyhands.report.matplotlib_backend import picture

        write_bytes(plot, picture(charts(result), conclusion(result)))
    if output.wants_json():
        output.emit(result)
    else:
        _show_sizes(result)


@app.command("lr")
def lr(
    model: options.Model,
    data: options.Data = "digits",
    plan: PlanWords = "serial",
    batch_size: options.BatchSize = None,
    seed: options.Seed = None,
    settings: options.Set = None,
    config: options.ConfigFile = None,
    as_json: output.Json = False,
    quiet: output.Quiet = False,
) -> None:
    """Find a learning rate by a range test: steps whose rate grows until the loss blows up."""
    output.set_output(as_json, quiet)
    order = options.make_config(model, data, None, batch_size, seed, settings, config)
    from manyhands.tune.lr_range_test import tune

    result = tune(order, parse(plan))
    if output.wants_json():
        output.emit(result)
        return
    every = result["table"]
    rows = [[f"{row['lr']:.2g}", output.number(row["smoothed"], 4)] for row in every[:: max(len(every) // 20, 1)]]
    output.table(["rate", "smoothed loss"], rows)
    blows_up = result["blows_up"]
    end = f"it blows up at {blows_up:.2g}" if blows_up else "it never blows up"
    falls = f"falls fastest at {result['steepest']:.2g}" if result["steepest"] else "does not fall before"
    print(f"The loss {falls}, {end}: --set optim.lr={result['best']['lr']:.2g}")


@app.command("workers")
def workers(
    model: options.Model,
    data: options.Data = "digits",
    plan: PlanWords = "plain",
    batch_size: options.BatchSize = None,
    seed: options.Seed = None,
    settings: options.Set = None,
    config: options.ConfigFile = None,
    as_json: output.Json = False,
    quiet: output.Quiet = False,
) -> None:
    """Find how many loader processes make an epoch shortest."""
    output.set_output(as_json, quiet)
    order = options.make_config(model, data, None, batch_size, seed, settings, config)
    from manyhands.tune.loader_workers import tune

    result = tune(order, parse(plan))
    if output.wants_json():
        output.emit(result)
        return
    rows = [
        [str(row["workers"]), output.number(row["samples_per_s"]), output.number(row["first_ms"]), row["failed"] or ""]
        for row in result["table"]
    ]
    output.table(["processes", "samples/s", "ms to begin an epoch", ""], rows)
    print(f"--set loader.workers={result['best']['workers']} is the shortest epoch, its start included")


def _number(option: str, text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"{option} {text}: a number is needed, as 0.98") from None


def _count(option: str, text: str) -> int:
    if not text.isdecimal():
        raise ConfigError(f"{option} {text}: a whole number, at least 1, is needed")
    return int(text)


def _sizes(text: str | None) -> tuple[int, ...]:
    parts = [] if text is None else text.split(",")
    if not all(part.strip().isdecimal() for part in parts):
        raise ConfigError(f"--sizes {text}: whole numbers with commas between them are needed, as 64,128,256")
    return tuple(int(part) for part in parts)


def _show_sizes(result: dict[str, Any]) -> None:
    columns = ["batch", "samples/s", "memory MB", "rate", "steps", "seconds", "accuracy", "regime"]
    title = f"to {output.percent(result['target'])}"
    output.table(columns, [_row(row) for row in result["table"]], title, folds=("regime",))
    limit, knee = result["memory_limit"], result["knee"]
    print(f"throughput knee: batch {knee['batch_size']}, {knee['samples_per_s']:,.0f} samples/s")
    above = f", {limit['fails_at']:,} does not" if limit["fails_at"] else ""
    print(f"memory: batch {limit['batch_size']:,} runs{above}: {limit['why']}")
    law = result["law"] or {}
    noise, steps = output.number(result["critical_batch"]), output.number(law.get("critical_batch"))
    print(f"critical batch: {noise} from the noise in the gradients, {steps} from the steps")
    print(conclusion(result))


def _row(row: dict[str, Any]) -> list[str]:
    if row["failed"]:
        return [f"{row['batch_size']:,}", "does not run", *[""] * 6]
    return [
        f"{row['batch_size']:,}",
        output.number(row["samples_per_s"]),
        output.number(row["memory_mb"]),
        "–" if row["lr"] is None else f"{row['lr']:.2g}",
        output.number(row["steps_to_target"]),
        output.number(row["seconds_to_target"], 2),
        output.percent(row["accuracy"]),
        row["regime"] or "",
    ]


def conclusion(result: dict[str, Any]) -> str:
    """What it comes to, in a sentence."""
    best, target = result["best"], output.percent(result["target"])
    if best is None:
        return f"No training reached {target} within {result['epochs']} epochs: lower --target or raise --epochs"
    return (
        f"Batch {best['batch_size']:,} with rate {best['lr']:.2g} is soonest at {target}: "
        f"{best['steps']:,} steps, {best['seconds']:.2f} s"
    )
