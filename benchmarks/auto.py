"""Is what `--plan auto` finds ever slower than plain, serial or ddp? Prints a table for benchmarks/results/auto.md.

python benchmarks/auto.py [--first K] [--cases N] [--repeats R]

For each case the plan is searched (nothing is remembered from before), then trained anew beside plain, serial as it
binds itself, and ddp over all cores, in turn, in fresh processes for each repeat: where its memory lies alone makes one
process of the same plan some percent slower than another. It must not be slower than any of them by more than two
standard errors, or be the same plan.
"""

import argparse
import math
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from manyhands.config import Config, with_values
from manyhands.machine.detect import detect
from manyhands.measure.plan_benchmark import BenchmarkResult, benchmark
from manyhands.plan.spec import parse
from manyhands.train.plan_constraints import resolve
from manyhands.tune.plan import choose

IMAGES, SMALL_IMAGES, TEXT = "synthetic:1x28x28,10", "synthetic:3x64x64,200", "synthetic:text:64,20"
CASES: list[tuple[str, str, int, dict[str, Any]]] = [
    ("convnet", IMAGES, 256, {}),
    ("text", TEXT, 128, {}),
    ("alexnet", SMALL_IMAGES, 64, {"model.head": "6x6"}),
    ("transformer", TEXT, 64, {}),
    ("resnet18", "synthetic:3x32x32,10", 32, {"model.width": 0.5}),
    ("mlp", "synthetic:20,2", 256, {}),
    ("convnet", IMAGES, 64, {}),
    ("locally", IMAGES, 128, {}),
    ("text", TEXT, 32, {}),
    ("transformer", TEXT, 256, {}),
    ("mlp", "synthetic:20,2", 32, {}),
    ("convnet", IMAGES, 1024, {}),
    ("alexnet", SMALL_IMAGES, 16, {}),
    ("resnet18", "synthetic:3x32x32,10", 128, {"model.width": 0.25}),
    ("text", TEXT, 512, {"model.cell": "lstm"}),
    ("convnet", "synthetic:3x64x64,10", 128, {"model.width": 0.5}),
    ("mlp", IMAGES, 512, {}),
    ("transformer", TEXT, 16, {}),
    ("resnet50", "synthetic:3x32x32,10", 16, {"model.width": 0.5}),
    ("text", TEXT, 256, {"model.cell": "bag"}),
]


def one(model: str, data: str, batch: int, more: dict[str, Any], rounds: int) -> bool:
    """Print a row; whether the found plan holds."""
    values = {"model.name": model, "data.name": data, "train.batch_size": batch, "data.size": 4 * batch, **more}
    config, machine = with_values(Config(), values), detect()
    begun = time.perf_counter()
    answer = choose.search_plan(parse("auto"), config, machine)
    took = time.perf_counter() - begun
    others = [f"ddp:{machine.physical_cores}"] if machine.physical_cores > 1 else []
    plans = [answer.best.plan, *(resolve(parse(each), config, machine) for each in ("plain", "serial", *others))]
    repeats = [benchmark(config, plans, 1) for _ in range(rounds)]
    best, *turns = (_together(each) for each in zip(*repeats, strict=True))
    holds = [_not_slower(best, turn) for turn in turns]
    cells = [f"{turn.step_ms:.2f} ± {turn.error_ms:.2f}" for turn in (best, *turns)]
    name = f"{best.plan.name}, {best.plan.precision}, {best.plan.layout}"
    print(
        f"| {model} | {batch} | {name} | {took:.0f} | {' | '.join(cells)} | {'yes' if all(holds) else 'no'} |",
        flush=True,
    )
    return all(holds)


def _together(turns: Sequence[BenchmarkResult]) -> BenchmarkResult:
    """The repeats of one plan as its rounds."""
    return replace(turns[0], rounds=tuple(time for turn in turns for time in turn.rounds))


def _not_slower(best: BenchmarkResult, other: BenchmarkResult) -> bool:
    errors = math.hypot(best.error_ms, other.error_ms)
    return str(best.plan) == str(other.plan) or best.step_ms <= other.step_ms + 2 * errors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=0, help="leave out as many cases: the table can be made in parts")
    parser.add_argument("--cases", type=int, default=len(CASES))
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        os.environ["MANYHANDS_HOME"] = home
        print(f"{detect()}\n\nMilliseconds a step, median of {given.repeats} processes ± standard error.\n")
        print("| model | batch | found | search, s | found | plain | serial | ddp | not slower |")
        print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
        chosen = CASES[given.first : given.first + given.cases]
        held = sum(one(*case, given.repeats) for case in chosen)
    print(f"\nNot slower in {held} of {len(chosen)} cases.")


if __name__ == "__main__":
    main()
