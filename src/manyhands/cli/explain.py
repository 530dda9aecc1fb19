"""`manyhands explain`."""

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from manyhands.cli import options, output, outputs
from manyhands.cli.simulate import Devices, Machine, OneDeviceMs, PerDevice
from manyhands.files import write_bytes
from manyhands.plan.spec import parse
from manyhands.report.gantt import lanes, shown

if TYPE_CHECKING:
    from manyhands.simulate.layer_report import Row
    from manyhands.simulate.simulator import Prediction

MOST_WIDE = 160


def explain(
    plan: Annotated[str, typer.Argument(help="Plan words or a plan.toml.")],
    model: Annotated[str, typer.Option("--model", help="A zoo name, file.py:factory or package.module:factory.")],
    data: options.Data = "digits",
    machine: Machine = "here",
    devices: Devices = None,
    batch_size: options.BatchSize = None,
    batch_per_device: PerDevice = False,
    one_device_ms: OneDeviceMs = None,
    png: Annotated[
        Path | None, typer.Option("--png", parser=outputs.file_name, help="A picture of the timeline, too.")
    ] = None,
    settings: options.Set = None,
    config: options.ConfigFile = None,
    as_json: output.Json = False,
    quiet: output.Quiet = False,
) -> None:
    """Tell why a plan takes as long as it is predicted to: layer by layer, in words, and as a timeline."""
    output.set_output(as_json, quiet)
    order = options.make_config(model, data, None, batch_size, None, settings, config)
    chosen = parse(plan)
    outputs.check({"--png": png}, outputs.inputs_of(order, config, machine, plan))
    from manyhands.simulate import layer_report, narrative  # torch and numba come in here
    from manyhands.simulate import simulator as simulated
    from manyhands.tune.plan.local_predictor import simulator_of

    simulated.check(chosen)
    simulator = simulator_of(order, machine, one_device_ms)
    count = simulated.devices_for(chosen, devices)
    batch = order.train.batch_size * (count if batch_per_device else 1)
    prediction = simulator.predict(chosen, batch, count)
    rows = layer_report.rows(prediction)
    words = narrative.narrative(prediction, model, rows)
    if png:
        write_bytes(png, _picture(prediction, model))
    if output.wants_json():
        output.emit(
            {
                "model": model,
                **prediction.to_json(),
                "shares": layer_report.shares(prediction.result),
                "why": [row.to_json() for row in rows],
                "narrative": words,
                "png": str(png) if png else None,
            }
        )
        return
    width = min(Console().width, MOST_WIDE)
    print(textwrap.fill(words, width))
    output.table(
        ["layer", "operation", "split", "forward", "backward", "transfers", "saves", "MB"],
        [_cells(row, count) for row in rows],
        "milliseconds; saves: against this layer by sample over the same devices",
        folds=("layer", "operation", "split"),
    )
    result = prediction.result
    print("\n".join(lanes(result.timeline.events, prediction.cluster.devices, result.step_ns, width)))
    if png:
        print(f"picture: {png}")


def _cells(row: "Row", devices: int) -> list[str]:
    saves = "–" if row.saves_ms is None else f"{row.saves_ms:+,.3f}" if abs(row.saves_ms) >= 0.0005 else "0"
    return [
        row.layer,
        row.short,
        row.split if len(row.devices) == devices else f"{row.split} on {row.places}",
        output.number(row.forward_ms, 3),
        output.number(row.backward_ms, 3),
        output.number(row.transfer_ms, 3),
        saves,
        output.number(row.memory_mb, 1),
    ]


def _picture(prediction: "Prediction", model: str) -> bytes:
    from manyhands.report import matplotlib_backend  # matplotlib
    from manyhands.report.charts.timelines import one_step

    result = prediction.result
    events = shown(result.timeline.events, prediction.cluster.devices)
    return matplotlib_backend.png(
        one_step("explained", f"{model}, {prediction.plan.name}: {result.step_ms:,.2f} ms", events)
    )
