"""`manyhands plan`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from manyhands.cli import options, output, outputs
from manyhands.cli.simulate import Devices, Machine
from manyhands.errors import InputError, PlanError
from manyhands.files import make_folder
from manyhands.machine.detect import detect
from manyhands.plan.plan import Plan
from manyhands.plan.spec import parse, write
from manyhands.progress import say

if TYPE_CHECKING:
    from manyhands.tune.plan.choose import SearchResult


def plan(
    model: options.Model,
    data: options.Data = "digits",
    batch_size: options.BatchSize = None,
    machine: Machine = "here",
    devices: Devices = None,
    fixed: Annotated[
        str, typer.Option("--plan", help="auto with what you want to be so: auto,precision=fp32.")
    ] = "auto",
    budget: Annotated[
        float | None, typer.Option("--budget", metavar="SECONDS", help="Of a search on a described machine.")
    ] = None,
    seed: options.Seed = None,
    settings: options.Set = None,
    config: options.ConfigFile = None,
    out: Annotated[Path, typer.Option("-o", "--out", parser=outputs.file_name, help="The plan's file.")] = Path(
        "plan.toml"
    ),
    as_json: output.Json = False,
    quiet: output.Quiet = False,
) -> None:
    """Find the fastest plan: simulated, and on this machine measured too; written as a plan.toml."""
    output.set_output(as_json, quiet)
    order = options.make_config(model, data, None, batch_size, seed, settings, config)
    auto = parse(fixed)
    if [axis.name for axis in auto.axes] != ["auto"]:
        raise PlanError(f"--plan {fixed}: a plan is to be found, so say auto, and what is fixed: auto,precision=fp32")
    if budget is not None and not budget > 0:
        raise InputError(f"--budget {budget}: a number of seconds above zero is needed")
    outputs.check({"-o": out}, outputs.inputs_of(order, config, machine))
    make_folder(out.absolute().parent)  # before a search that would be lost
    if machine == "here":
        if devices is not None:
            raise InputError(f"--devices {devices}: this machine has what it has; for others name them by --machine")
        _here(model, auto, order, out)
    else:
        _described(model, auto, order, machine, devices, budget, out)


def _here(model: str, auto: Plan, order: Any, out: Path) -> None:
    from manyhands.tune.plan.choose import search_plan  # torch and numba come in here

    answer = search_plan(auto, order, detect())
    write(answer.best.plan, out)
    result = {"model": model, "machine": "here", **answer.to_json(), "out": str(out)}
    if output.wants_json():
        output.emit(result)
        return
    _table(result)
    print(_verdict(answer))
    print(f"plan: {out} (train with --plan {out})")


def _verdict(answer: "SearchResult") -> str:
    """What was found, what that took, and when it is repaid."""
    best, cost = answer.best, f"The search took {answer.seconds:.0f} s"
    repaid = (
        f", repaid after {answer.repaid_after:,} steps against plain." if answer.repaid_after else "; plain is as fast."
    )
    again = " (some time ago: the answer was kept)" if answer.known else ""
    taken = f"{best.plan.label} takes {best.measured_ms:,.2f} ms a step, the least of what was measured."
    return f"{taken} {cost}{again}{repaid}"


def _described(
    model: str, auto: Plan, order: Any, machine: str, devices: int | None, budget: float | None, out: Path
) -> None:
    from manyhands.simulate.layer_report import rows
    from manyhands.simulate.narrative import narrative
    from manyhands.simulate.simulator import Simulator
    from manyhands.tune.plan.described_machine import plan_on

    simulator = Simulator.of(order, machine)
    count = simulator.cluster.of(devices if devices is not None else simulator.cluster.devices).devices
    say(f"searching on {count} devices of {machine}")
    planned = plan_on(simulator, auto, order.train.batch_size, count, budget, order.train.seed)
    write(planned.best.plan, out)
    told = rows(planned.best)
    result = {
        "model": model,
        "machine": machine,
        "devices": count,
        **planned.to_json(),
        "why": [row.to_json() for row in told],
        "out": str(out),
    }
    if output.wants_json():
        output.emit(result)
        return
    _table(result)
    print(narrative(planned.best, model, told))
    print("Planned by simulation alone: this machine is not at hand, so nothing was measured.")
    print(f"plan: {out} (manyhands explain {out} --model {model} --machine {machine} says more)")


def _table(result: dict[str, Any]) -> None:
    rows = [
        [
            row["name"],
            output.number(row["predicted_step_ms"], 2),
            output.number(row["measured_step_ms"], 2),
            row["failed"] or "",
        ]
        for row in result["candidates"]
    ]
    output.table(["plan", "predicted ms", "measured ms", ""], rows)
