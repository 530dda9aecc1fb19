"""`manyhands simulate`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from manyhands.cli import options, output, outputs
from manyhands.cli.accuracy import Accuracy, Target, show_accuracy
from manyhands.errors import InputError
from manyhands.plan.spec import parse
from manyhands.report.scaling_plot import scaling

Machine = Annotated[str, typer.Option("--machine", help="here, a shipped description such as p100x4-ib, or a file.")]
Devices = Annotated[
    int | None, typer.Option("--devices", metavar="N", help="How many; default: as many as the plan needs.")
]
OneDeviceMs = Annotated[
    float | None,
    typer.Option("--one-device-ms", metavar="MS", help="A known step of one device at batch B / N, to be matched."),
]
PerDevice = Annotated[bool, typer.Option("--batch-per-device", help="--batch-size is that of one device.")]


def simulate(
    model: options.Model,
    plan: Annotated[str, typer.Option("--plan", help="Plan words or a plan.toml.")],
    data: options.Data = "digits",
    machine: Machine = "here",
    devices: Devices = None,
    batch_size: options.BatchSize = None,
    batch_per_device: PerDevice = False,
    one_device_ms: OneDeviceMs = None,
    sweep: Annotated[
        str | None, typer.Option("--sweep", help="devices=1,2,4,8: a row for each; the plan's degree follows.")
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option("--trace", parser=outputs.file_name, help="A file for the timeline, as a Chrome trace."),
    ] = None,
    accuracy: Accuracy = False,
    epochs: options.Epochs = None,
    seed: options.Seed = None,
    target: Target = None,
    settings: options.Set = None,
    config: options.ConfigFile = None,
    as_json: output.Json = False,
    quiet: output.Quiet = False,
) -> None:
    """Predict a plan's step on a machine that you may not have: speed, memory, where devices wait.

    With --accuracy a whole training of workers that may each have weights of another age: how fast, and how accurate.
    """
    output.set_output(as_json, quiet)
    trained = {"--epochs": epochs, "--seed": seed, "--target": target}
    predicted = {
        "--devices": devices,
        "--batch-per-device": batch_per_device or None,
        "--one-device-ms": one_device_ms,
        "--sweep": sweep,
        "--trace": trace,
    }
    for name, value in (predicted if accuracy else trained).items():
        if value is not None:
            raise InputError(f"{name} {'does not go with' if accuracy else 'is for'} --accuracy: leave it out")
    if accuracy:
        order = options.make_config(model, data, epochs, batch_size, seed, settings, config)
        show_accuracy(order, plan, machine, target)
        return
    numbers = read_sweep(sweep) if sweep is not None else []
    if numbers and (trace or devices):
        raise InputError(f"--sweep {sweep} does not go with {'--trace' if trace else '--devices'}: leave one out")
    if numbers and one_device_ms and not batch_per_device:
        raise InputError(
            f"--one-device-ms {one_device_ms} is for one batch, which --sweep divides by other numbers of devices: "
            "add --batch-per-device"
        )
    order = options.make_config(model, data, None, batch_size, None, settings, config)
    chosen = parse(plan)
    outputs.check({"--trace": trace}, outputs.inputs_of(order, config, machine, plan))
    from manyhands.simulate import device_sweep  # torch and numba come in here
    from manyhands.simulate import simulator as simulated
    from manyhands.tune.plan.local_predictor import simulator_of

    simulated.check(chosen)
    for number in numbers:
        device_sweep.scaled(chosen, number)
    simulator = simulator_of(order, machine, one_device_ms)
    batch = order.train.batch_size
    if numbers:
        _show_sweep(machine, device_sweep.sweep(simulator, chosen, numbers, batch, batch_per_device))
        return
    count = simulated.devices_for(chosen, devices)
    prediction = simulator.predict(chosen, batch * count if batch_per_device else batch, count)
    if trace:
        prediction.result.timeline.save(trace)
    result = {"model": model, **prediction.to_json(), "trace": str(trace) if trace else None}
    if output.wants_json():
        output.emit(result)
        return
    output.table(["", result["plan"]], summary(result))
    if trace:
        print(f"timeline: {trace} (chrome://tracing and Perfetto open it)")


def read_sweep(text: str) -> list[int]:
    """The numbers of `devices=1,2,4`, each once, in order."""
    key, _, values = text.partition("=")
    words = values.split(",")
    if key != "devices" or not all(word.isdecimal() and int(word) for word in words):
        raise InputError(f"--sweep {text}: numbers of devices, each at least 1, are needed: --sweep devices=1,2,4,8")
    return sorted({int(word) for word in words})


def summary(result: dict[str, Any]) -> list[tuple[str, str]]:
    """What is predicted, for people."""
    return [
        ("machine", result["machine"]),
        ("devices", str(result["devices"])),
        ("batch", f"{result['batch_size']:,}"),
        ("step, ms", output.number(result["step_ms"], 3)),
        ("samples/s", output.number(result["samples_per_s"])),
        ("speed-up over one device", f"{result['speedup_over_one_device']:.2f}x"),
        ("memory of the fullest device, MB", output.number(max(result["memory_mb"]))),
        ("idle", output.percent(result["idle_fraction"])),
        ("transfers while nothing is computed, ms", output.number(result["exposed_comm_ms"], 3)),
        ("layers known from", "torch.export" if result["traced"] == "export" else "watching the modules, as a chain"),
    ]


def _show_sweep(machine: str, rows: list[dict[str, Any]]) -> None:
    if output.wants_json():
        output.emit({"machine": machine, "rows": rows})
        return
    columns = ["plan", "batch", "step ms", "samples/s", "speed-up", "idle", "exposed ms", "MB"]
    output.table(columns, list(map(_row, rows)), f"on {machine}", folds=())
    for row in rows:
        if row["failed"]:
            print(f"{row['plan']} is left out: {row['failed']}")
    print("\n".join(scaling([row["devices"] for row in rows], [row.get("speedup_over_one_device") for row in rows])))


def _row(row: dict[str, Any]) -> list[str]:
    if row["failed"]:
        return [row["plan"], *["–"] * 7]
    speedup = row["speedup_over_one_device"]
    return [
        row["plan"],
        f"{row['batch_size']:,}",
        output.number(row["step_ms"], 2),
        output.number(row["samples_per_s"]),
        f"{speedup:.2f}x",
        f"{100 * row['idle_fraction']:.0f} %",
        output.number(row["exposed_comm_ms"], 2),
        output.number(max(row["memory_mb"])),
    ]
