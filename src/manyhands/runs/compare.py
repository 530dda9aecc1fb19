"""Compare: plans side by side, like for like: same seeds, same data order, same epochs, repeats interleaved."""

import shutil
import statistics
from collections.abc import Mapping, Sequence
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
from manyhands.runs.config import Config, with_values

Variants = Mapping[str, Mapping[str, Any]]  # by name, what is changed in the config

MEASURES = ("samples_per_s", "train_seconds", "test_accuracy")
SENT = ("sent_bytes_per_step", "compression_ratio")  # None where nothing is sent, or nobody counts


@dataclass(frozen=True)
class Case:
    """What makes one row: a plan and the config that it trains with."""

    label: str
    plan: Plan
    config: Config


@dataclass(frozen=True)
class Cell:
    """One training of the comparison: a case, and the number of the repeat."""

    case: Case
    repeat: int
    folder: Path

    @property
    def label(self) -> str:
        return self.case.label


def cases(config: Config, plans: Sequence[tuple[str, Plan]], variants: Variants | None = None) -> list[Case]:
    """Every plan, as it was written, with every variant of the config."""
    if not variants:
        return [Case(label, plan, config) for label, plan in plans]
    return [
        Case(f"{label} @ {name}", plan, with_values(config, changes))
        for label, plan in plans
        for name, changes in variants.items()
    ]


def by_affinity(sets: Sequence[str]) -> Variants:
    """A variant for each set of cores."""
    return {each: {"cpu.affinity": each} for each in sets}


def compare(
    config: Config, plans: Sequence[tuple[str, Plan]], repeats: int, out: Path, variants: Variants | None = None
) -> dict[str, Any]:
    """Train every case `repeats` times, A B A B, each in a fresh process; repeat r uses seed + r in all cases."""
    every = cases(config, plans, variants)
    cells = [
        Cell(case, repeat, out / f"{number}-{case.plan.name.replace(':', '').replace(',', '-')}-r{repeat}")
        for repeat in range(repeats)
        for number, case in enumerate(every)
    ]
    done: list[tuple[Cell, store.Run]] = []
    for number, cell in enumerate(cells):
        say(f"{number + 1} of {len(cells)}: {cell.label}, repeat {cell.repeat + 1}")
        done.append((cell, _train(cell, f"{number + 1} of {len(cells)} {cell.label}")))
        if len(done) == len(every) and all(run.status != "finished" for _, run in done):
            error = _error_of(done[0][1])
            if error.exit_code == 2:  # bad input leaves nothing behind
                for each in done:
                    shutil.rmtree(each[0].folder)
                with suppress(OSError):
                    out.rmdir()
            raise error
    comparison = {"rows": rows(done, [case.label for case in every]), "out": str(out)}
    write_json(out / "compare.json", comparison)
    return comparison


def _train(cell: Cell, title: str) -> store.Run:
    config = cell.case.config
    seeded = replace(config, train=replace(config.train, seed=config.train.seed + cell.repeat))
    run = runs.begin(seeded, cell.case.plan, cell.folder)
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
    """One row a case, in the order given; speed-up is over the first row."""
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
                **{key: results[0].get(key) if results else None for key in SENT},
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
