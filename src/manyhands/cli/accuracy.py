"""`manyhands simulate --accuracy`: a training on virtual workers."""

from typing import Annotated, Any

import typer

from manyhands.cli import output
from manyhands.config import Config
from manyhands.plan.spec import parse

TARGET = 0.98

Accuracy = Annotated[
    bool, typer.Option("--accuracy", help="Train for real on the plan's virtual workers, by a virtual clock.")
]
Target = Annotated[
    float | None,
    typer.Option("--target", metavar="A", help=f"Validation accuracy to be timed (default {TARGET})."),
]


def show_accuracy(config: Config, plan: str, machine: str, target: float | None) -> None:
    """Train on virtual workers, and tell accuracy and loss against virtual seconds."""
    chosen = parse(plan)
    from manyhands.simulate.cluster.train import train  # torch comes in here
    from manyhands.tune.plan.worker_timing import pace_of

    wanted = TARGET if target is None else target
    result = {"model": config.model.name, **train(config, chosen, machine, wanted, pace_of).to_json()}
    if output.wants_json():
        output.emit(result)
        return
    columns = ["epoch", "virtual s", "train loss", "validation loss", "validation accuracy"]
    output.table(columns, [_epoch(each) for each in result["epochs"]], f"{result['plan']} on {machine}")
    output.table(["", result["plan"]], summary(result))


def _epoch(row: dict[str, Any]) -> list[str]:
    return [
        str(row["epoch"]),
        output.number(row["virtual_seconds"], 3),
        output.number(row["train_loss"], 4),
        output.number(row["val_loss"], 4),
        output.percent(row["val_accuracy"]),
    ]


def summary(result: dict[str, Any]) -> list[tuple[str, str]]:
    late = result["staleness"]
    seen = ", ".join(f"{value}: {times:,}" for value, times in late["histogram"].items())
    reached = result["time_to_target"]
    return [
        ("virtual workers", str(result["workers"])),
        ("virtual seconds", output.number(result["virtual_seconds"], 3)),
        ("seconds an epoch", output.number(result["virtual_seconds"] / len(result["epochs"]), 3)),
        ("samples/s", output.number(result["samples_per_s"])),
        ("speed-up over one device", f"{result['speedup_over_one_device']:.2f}x"),
        ("idle", output.percent(result["idle_fraction"])),
        ("test accuracy", output.percent(result["accuracy"])),
        (f"seconds to {100 * result['target']:g} %", "not reached" if reached is None else output.number(reached, 3)),
        ("staleness, mean and most", f"{late['mean']:.2f}, {late['max']}"),
        ("staleness: how often", seen or "–"),
    ]
