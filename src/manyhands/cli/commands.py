"""Commands: which there are, each loaded only when it is called, so that `manyhands --help` is instant."""

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

# In the order of the help; a test holds each line to be what the command's own help begins with.
COMMANDS = {
    "train": "Train a model, and keep the run in a folder.",
    "compare": "Train with several plans, like for like, and show them side by side.",
    "demo": "Train a small convnet with plain PyTorch and with manyhands, and show both side by side.",
    "data": "Data sets: which are known, get one, look at one.",
    "runs": "List runs, oldest first; --filter, --sort and --limit choose among them.",
    "show": "Show one run: what it was, its curves, its result, and what each layer costs forward and backward.",
    "serve": "Show runs in the browser while they train, until Ctrl-C.",
    "predict": "Say the class of new files, and how sure the model is.",
    "export": (
        "Write the model for deployment, checked on real samples, or the run's curves and timeline for other programs."
    ),
    "average": "Write the mean of the weights of a run's last checkpoints, or of several runs that began alike.",
    "ensemble": "Ask independently trained models together, and score them beside each alone.",
    "probe": "Measure this machine: rates of its cores and GPUs, links between ranks; takes a minute on a few cores.",
    "plan": "Find the fastest plan: simulated, and on this machine measured too; written as a plan.toml.",
    "simulate": "Predict a plan's step on a machine that you may not have: speed, memory, where devices wait.",
    "explain": "Tell why a plan takes as long as it is predicted to: layer by layer, in words, and as a timeline.",
    "study": "Make a published experiment again on this machine, beside its figures; or sweep a recipe of your own.",
    "tune": "Batch size, learning rate and loader processes, found by measuring.",
    "report": "Make a page of runs, comparisons or studies: one file that opens offline, the finding first.",
    "launch": "Run your own training script on the ranks of a plan.",
}


class Commands(TyperGroup):
    """A module of this folder for each command: its function of the same name, or its `app` of several."""

    def list_commands(self, context: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: Any, name: str) -> Any:
        return load(name) if name in COMMANDS else None

    def format_commands(self, context: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def load(name: str) -> Any:
    module = import_module(f"manyhands.cli.{name}")
    app: typer.Typer | None = getattr(module, "app", None)
    if app is None:
        app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
        app.command(name, context_settings=getattr(module, "SETTINGS", None))(getattr(module, name))
    command = typer.main.get_command(app)
    command.name = name
    return command
