"""Compare: plans side by side, like for like: same seeds, same data order, same epochs, repeats interleaved."""

import shutil
import statistics
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from manyhands.comm.launch import in_fresh_process
from manyhands.errors import InputError, RunError
from manyhands.files import write_json
from manyhands.plan.plan import Plan
from manyhands.progress import bar, say
from manyhands.runs import run as runs
from manyhands.runs import store
from manyhands.runs.config import Config

MEASURES = ("samples_per_s", "train_seconds", "test_accuracy")


@dataclass(frozen=True)
class Cell:
    """One training of the comparison: a plan, as it was written, and the number of the repeat."""

    plan: Plan
    label: str
    repeat: int
    folder: Path


def compare(config: Config, plans: Sequence[tuple[str, Plan]], repeats: int, out: Path) -> dict[str, Any]:
    """Train every plan `repeats` times, A B A B, each in a fresh process; repeat r uses seed + r in all plans."""
    cells = [
        Cell(plan, label, repeat, out / f"{number}-{plan.name.replace(':', '').replace(',', '-')}-r{repeat}")
        for repeat in range(repeats)
        for number, (label, plan) in enumerate(plans)
    ]
    done: list[tuple[Cell, store.Run]] = []
    for number, cell in enumerate(cells):
        say(f"{number + 1} of {len(cells)}: {cell.label}, repeat {cell.repeat + 1}")
        done.append((cell, _train(config, cell, f"{number + 1} of {len(cells)} {cell.label}")))
        if len(done) == len(plans) and all(run.status != "finished" for _, run in done):
            error = _error_of(done[0][1])
            if error.exit_code == 2:  # bad input leaves nothing behind
                for each in done:
                    shutil.rmtree(each[0].folder)
                with suppress(OSError):
                    out.rmdir()
            raise error
    comparison = {"rows": rows(done, [label for label, _ in plans]), "out": str(out)}
    write_json(out / "compare.json", comparison)
    return comparison


def _train(config: Config, cell: Cell, title: str) -> store.Run:
    seeded = replace(config, train=replace(config.train, seed=config.train.seed + cell.repeat))
    run = runs.begin(seeded, cell.plan, cell.folder)
    with bar(title, 100, "%") as shown, runs.watched(run.folder, shown):
        code, errors = in_fresh_process("manyhands.runs.worker", str(run.folder))
    run = store.load(run.folder)
    if run.status == "running":  # it died without a word
        last = errors.strip().splitlines()[-1] if errors.strip() else "no message"
        run = run.update(status="failed", error=f"exit code {code}: {last}", exit_code=1)
    if run.status != "finished":
        say(f"  failed: {run.record['error']}")
    return run


def _error_of(run: store.Run) -> InputError | RunError:
    kind = InputError if run.record.get("exit_code") == 2 else RunError
    return kind(str(run.record["error"]))


def rows(done: Sequence[tuple[Cell, store.Run]], labels: Sequence[str]) -> list[dict[str, Any]]:
    """One row a plan, in the order given; speed-up is over the first row."""
    table: list[dict[str, Any]] = []
    for label in labels:
        mine = [run for cell, run in done if cell.label == label]
        results = [run.result for run in mine if run.status == "finished" and run.result]
        failed = next((str(run.record["error"]) for run in mine if run.status != "finished"), None)
        measures: dict[str, list[float]] = {
            "samples_per_s": [each["samples_per_s"] for each in results if each["samples_per_s"] is not None],
            "train_seconds": [each["seconds"]["train"] for each in results],
            "test_accuracy": [each["test_accuracy"] for each in results],
        }
        table.append(
            {
                "plan": label,
                **{name: mean_and_std(measures[name]) for name in MEASURES},
                "bound": results[0]["plan"] if results else None,
                "n": len(results),
                "failed": failed,
                "runs": [str(run.folder) for run in mine],
            }
        )
    base = table[0]["samples_per_s"]
    for row in table:
        row["speedup"] = row["samples_per_s"]["mean"] / base["mean"] if row["samples_per_s"] and base else None
    return table


def mean_and_std(values: Sequence[float]) -> dict[str, float] | None:
    """Mean and sample deviation; None without values."""
    if not values:
        return None
    return {"mean": statistics.fmean(values), "std": statistics.stdev(values) if len(values) > 1 else 0.0}
