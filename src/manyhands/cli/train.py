"""`manyhands train`."""

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from manyhands import api
from manyhands.cli import options, output
from manyhands.comm.ranks import rank_info
from manyhands.errors import InputError
from manyhands.plan.spec import parse
from manyhands.runs import run_folder, tensorboard
from manyhands.train import launch, process

MOST = 0.5  # of a set in one class, that is told beside the accuracy


def train(
    model: Annotated[str | None, typer.Argument(help="A zoo name, file.py:factory or package.module:factory.")] = None,
    data: Annotated[str | None, typer.Option("--data", help="A known set, a path, or synthetic:3x64x64,10.")] = None,
    plan: Annotated[str | None, typer.Option("--plan", help="Plan words or a plan.toml (default serial).")] = None,
    epochs: options.Epochs = None,
    batch_size: options.BatchSize = None,
    seed: options.Seed = None,
    settings: options.Set = None,
    config: options.ConfigFile = None,
    init_from: options.InitFrom = None,
    freeze: options.Freeze = None,
    out: Annotated[Path | None, typer.Option("--out", help="The run's folder; default: a new one.")] = None,
    with_tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Event files in RUN/tensorboard.")] = False,
    resume: Annotated[
        Path | None, typer.Option("--resume", parser=options.run_folder, metavar="RUN", help="Go on with this run.")
    ] = None,
    changed_code: options.ChangedCode = False,
    as_json: output.Json = False,
    quiet: output.Quiet = False,
) -> None:
    """Train a model, and keep the run in a folder."""
    output.set_output(as_json, quiet)
    if resume is not None:
        others = (
            model,
            data,
            plan,
            epochs,
            batch_size,
            seed,
            settings,
            config,
            init_from,
            freeze,
            out,
            with_tensorboard,
        )
        if any(others):
            raise InputError(
                f"--resume {resume} goes on with that run's own order: leave out all but --changed-code, --json and "
                "--quiet"
            )
        if run_folder.order_of(run_folder.load(resume)).log.tensorboard:
            tensorboard.check()
        show(launch.resume(resume, changed_code=changed_code))
        return
    if model is None and config is None:
        raise InputError("which model? Give a zoo name such as convnet, or your own as file.py:factory")
    order = options.make_config(
        model, data, epochs, batch_size, seed, settings, config, init_from, freeze, with_tensorboard, finds_batch=True
    )
    chosen = parse("serial" if plan is None else plan)
    show(api.start(order, chosen, out, shlex.join(["manyhands", *sys.argv[1:]])))


def show(run: run_folder.Run) -> None:
    """Print what a run came to; of several ranks that were started with this command, the first speaks."""
    if not rank_info.is_leader():
        return
    result = process.as_json(run)
    if output.wants_json():
        output.emit(result)
        return
    output.table(["", run.name], summary(result))
    print(f"run folder: {run.folder}")
    if (events := run.folder / tensorboard.FOLDER).exists():
        print(f"curves: tensorboard --logdir {events}")


def summary(result: dict[str, Any]) -> list[tuple[str, str]]:
    """The rows of a run's table."""
    rows = [
        ("plan", str(result.get("plan", "–"))),
        ("test accuracy", _accuracy(result)),
        ("validation accuracy", output.percent(result.get("val_accuracy"))),
        ("final loss", output.number(result.get("final_loss"), 4)),
        ("samples/s, steady state", output.number(result.get("samples_per_s"))),
        ("seconds", _seconds(result.get("seconds") or {})),
        ("peak memory, MB", output.number(result.get("peak_memory_mb"))),
    ]
    if (averaged := result.get("averaged_test_accuracy")) is not None:
        rows.insert(2, ("test accuracy, averaged weights", output.percent(averaged)))
    if result.get("sent_bytes_per_step"):
        rows.append(("gradients sent a step", output.sent(result)))
    if stale := result.get("staleness"):
        rows.append(("staleness", f"{stale['mean']:.2f} updates, at most {stale['max']}"))
    return rows


def _accuracy(result: dict[str, Any]) -> str:
    """With the step whose weights have it, and, where one class is most of the set, what guessing that would reach."""
    told = output.percent(result.get("test_accuracy"))
    if (step := result.get("weights_step")) is not None and step != result.get("steps"):
        told += f" with the best weights, of step {step}"
    if (share := result.get("test_majority")) is not None and share >= MOST:
        told += f"; {output.percent(share)} are of one class"
    return told


def _seconds(seconds: dict[str, float]) -> str:
    """The whole, and the phases that one notices."""
    apart = [f"{name} {value:.1f}" for name, value in seconds.items() if name != "total" and value and value >= 0.05]
    return f"{output.number(seconds.get('total'), 1)} ({', '.join(apart)})"
