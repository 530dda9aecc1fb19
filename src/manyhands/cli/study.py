"""`manyhands study`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from manyhands.cli import options, output
from manyhands.config import read_settings
from manyhands.errors import ConfigError
from manyhands.studies import recipe
from manyhands.studies import recipe as recipes
from manyhands.studies import study as studies

SEVERAL = {"training": "trainings", "simulation": "simulations", "search": "searches"}
# What every study may have: its column, digits, what it is multiplied by, and its unit.
MEASURES = {
    "train_seconds": ("seconds", 2, 1.0, ""),
    "samples_per_s": ("samples/s", 0, 1.0, ""),
    "test_accuracy": ("accuracy", 2, 100.0, " %"),
}


def study(
    name: Annotated[str | None, typer.Argument(help="Which study, or your own recipe.toml; left out: a list.")] = None,
    full: Annotated[bool, typer.Option("--full", help="As large as the source has it; default: minutes.")] = False,
    repeats: Annotated[
        str | None, typer.Option("--repeats", metavar="N", help="Trainings, or searches, of each cell.")
    ] = None,
    settings: options.Set = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the cells and their time.")] = False,
    smoke: Annotated[bool, typer.Option("--smoke", help="One cell, two steps: does it run here?")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", help="The folder for the runs; one begun before is finished.")
    ] = None,
    as_json: output.Json = False,
    quiet: output.Quiet = False,
) -> int:
    """Make a published experiment again on this machine, beside its figures; or sweep a recipe of your own."""
    output.set_output(as_json, quiet)
    if name is None:
        _list()
        return 0
    order = recipe.Order(recipes.read(name), full, _count(repeats), read_settings(settings or []), smoke)
    if dry_run:
        _plan(studies.dry_run(order, out))
        return 0
    result = studies.run(order, out)
    if output.wants_json():
        output.emit(result)
    else:
        show(result)
    return 1 if any(row["failed"] for row in result["rows"]) else 0


def _count(repeats: str | None) -> int | None:
    if repeats is None:
        return None
    if not repeats.isdecimal() or int(repeats) < 1:
        raise ConfigError(f"repeats={repeats}: a whole number, at least 1, is needed")
    return int(repeats)


def _list() -> None:
    every = [recipes.read(name) for name in recipes.names()]
    if output.wants_json():
        output.emit({"studies": [{"name": each.name, "title": each.title, "source": each.source} for each in every]})
        return
    output.table(["study", "source"], [[each.name, each.source] for each in every])


def _plan(told: dict[str, Any]) -> None:
    """The list of what would be done, and the time that it will take."""
    if output.wants_json():
        output.emit(told)
        return
    lines = [
        [each["label"], str(each["repeat"] + 1), each["plan"], output.number(each["seconds"], 1)]
        for each in told["cells"]
    ]
    output.table([told["by"], "repeat", "plan", "seconds, about"], lines)
    _say_left_out(told["left_out"])
    seconds = told["estimated_seconds"]
    about = "unknown" if seconds is None else f"{seconds / 60:.1f} minutes" if seconds > 90 else f"{seconds:.0f} s"
    print(f"{len(lines)} {SEVERAL[told['by']]}, about {about}, told from {told['estimated_from']}")


def show(result: dict[str, Any]) -> None:
    """Our table with the published figures beside, then what it comes to."""
    there = {row["label"]: row for row in result["published"]}
    extras = list(result["rows"][0]["extra"])
    measures = [name for name in MEASURES if any(row[name] for row in result["rows"])]
    count = [] if result["by"] == "simulation" else ["n"]
    columns = ["", *(MEASURES[name][0] for name in measures), *count, *extras, *(["published"] if there else [])]
    lines = [
        [*_row(row, measures, count, extras), *([_published(there.get(row["label"]))] if there else [])]
        for row in result["rows"]
    ]
    ours = {row["label"] for row in result["rows"]}
    lines += [
        [label, "not here", *[""] * (len(columns) - 3), _published(row)]
        for label, row in there.items()
        if label not in ours
    ]
    output.table(columns, lines, result["title"])
    print(f"source: {result['source']}\nhere: {result['hardware']['here']}")
    if result["hardware"]["published"]:
        print(f"published: {result['hardware']['published']}")
    if result["used"]:
        print(f"used: {result['used']}")
    for fit in result["fits"]:
        most = f"at most {fit['most']:.1f}x" if fit["most"] else "no limit"
        print(f"{fit['law']}, {fit['label']}: {100 * fit['serial_fraction']:.1f} % cannot be split, {most}")
    _say_left_out(result["left_out"])
    for row in result["rows"]:
        if row["failed"]:
            print(f"{row['label']} failed: {row['failed']}")
    print(f"differs: {result['differs']}\nfinding: {result['finding']}\nfolder: {result['out']}")


def _say_left_out(left_out: list[dict[str, Any]]) -> None:
    reasons: dict[str, list[str]] = {}
    for row in left_out:
        reasons.setdefault(row["reason"], []).append(row["label"])
    for reason, labels in reasons.items():
        print(f"left out: {'; '.join(labels)}: {reason}")


def _row(row: dict[str, Any], measures: list[str], count: list[str], extras: list[str]) -> list[str]:
    if not row["n"]:
        return [row["label"], *["failed", "", ""][: len(measures)], "0", *("" for _ in extras)]
    alone = row["n"] == 1
    return [
        row["label"],
        *(_spread(row[name], *MEASURES[name][1:], alone=alone) for name in measures),
        *(str(row[name]) for name in count),
        *(_spread(row["extra"][name], 2, alone=alone) for name in extras),
    ]


def _spread(
    value: dict[str, float] | float | str | None,
    digits: int = 0,
    scale: float = 1.0,
    unit: str = "",
    alone: bool = False,
) -> str:
    """A number, or a mean with its deviation where there are several; words as they are."""
    if value is None or isinstance(value, str):
        return value or "–"
    if isinstance(value, int):
        return f"{value:,}"
    mean, std = (value["mean"], value["std"]) if isinstance(value, dict) else (value, None)
    deviation = "" if std is None or alone else f" ± {scale * std:,.{digits}f}"
    return f"{scale * mean:,.{digits}f}{deviation}{unit}"


def _published(row: dict[str, Any] | None) -> str:
    """Every figure of a published row, by its name."""
    return ", ".join(f"{key} {value}" for key, value in row.items() if key != "label") if row else ""
