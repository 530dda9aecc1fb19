"""`manyhands study`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from manyhands.cli import output
from manyhands.runs import study as studies


def study(
    name: Annotated[str, typer.Argument(help="Which study; a wrong name lists them.")],
    full: Annotated[bool, typer.Option("--full", help="As large as the source has it; default: minutes.")] = False,
    out: Annotated[Path | None, typer.Option("--out", help="The folder for the runs; default: a new one.")] = None,
    as_json: output.Json = False,
    quiet: output.Quiet = False,
) -> int:
    """Make a published experiment again on this machine, and show both tables side by side."""
    output.set_output(as_json, quiet)
    result = studies.run(studies.read(name), full, out)
    if output.wants_json():
        output.emit(result)
    else:
        show(result)
    return 1 if any(row["failed"] for row in result["rows"]) else 0


def show(result: dict[str, Any]) -> None:
    """Our table beside the published one, then what it comes to."""
    here = {row["affinity"]: row for row in result["rows"]}
    there = {row["affinity"]: row for row in result["published"]}
    columns = ["cores", "seconds here", "gain", "accuracy", "n", "published", "gain"]
    sets = dict.fromkeys((*there, *here))
    output.table(columns, [_row(cores, here.get(cores), there.get(cores)) for cores in sets], result["source"])
    print(f"here: {result['hardware']['here']}\npublished: {result['hardware']['published']}")
    for row in result["left_out"]:
        print(f"left out: cores {row['affinity']}; this machine has no {', '.join(map(str, row['missing']))}")
    for row in result["rows"]:
        if row["failed"]:
            print(f"{row['plan']} failed: {row['failed']}")
    print(f"gain: the slowest time over this time\ndiffers: {result['differs']}\nfinding: {result['finding']}")
    print(f"run folders: {result['out']}")


def _row(cores: str, here: dict[str, Any] | None, there: dict[str, Any] | None) -> list[str]:
    published = [f"{there['time_ms'] / 1000:,.1f}", f"{100 * there['gain']:.2f} %"] if there else ["–", "–"]
    label = f"{(here or there or {})['cores']} ({cores})"
    if here is None:
        return [label, "not here", "", "", "", *published]
    if here["time_ms"] is None:
        return [label, "failed", "", "", "0", *published]
    time_ms, accuracy = here["time_ms"], here["test_accuracy"]
    return [
        label,
        f"{time_ms['mean'] / 1000:.2f} ± {time_ms['std'] / 1000:.2f}",
        f"{100 * here['gain']:.2f} %",
        f"{100 * accuracy['mean']:.2f} ± {100 * accuracy['std']:.2f} %",
        str(here["n"]),
        *published,
    ]
