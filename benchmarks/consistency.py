"""Makes benchmarks/results/consistency.md: how far workers run ahead, and what a slow one costs under each plan.

usage: consistency.py bound | speed  [--repeats R] [--steps S] [--epochs E] [--batch 128] [--fault slow_rank=1:3x]
                                 [--over gloo,server]
       (speed: MANYHANDS_DATA must hold mnist)

bound: 4 workers, steps that are slow at random, on every backend and over a server, for several bounds: staleness seen.
speed: one of 4 workers 3 times slower for good, then one step in ten 10 times slower, under each plan in turn: samples
a second, the accuracy after equally many samples, and the seconds of training after which a validation first saw 98 %.
Every training is a process of its own; ratios are those of the same turn.
"""

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from bench import Result, heading, output_of, ratio, spread

from manyhands.runs import run_folder

WORKERS, STALENESS, GOAL = 4, 4, 0.98
FAULTS = ("slow_rank=1:3x", "slow_steps=0.1:10x")
SYNC = f"data:{WORKERS}"
PLANS = (
    SYNC,
    f"data:{WORKERS},consistency=stale,staleness={STALENESS}",
    f"server:{WORKERS}+1,consistency=sync",
    f"server:{WORKERS}+1,consistency=async",
    f"server:{WORKERS}+1,consistency=stale,staleness={STALENESS}",
)
# Such that two epochs are enough for 98 %, and all of it takes half an hour on two cores.
WIDTH, RATE = 0.5, ("--set", "optim.schedule=one-cycle", "--set", "optim.lr=0.005")
REST = "device=cpu,precision=bf16,layout=contiguous,compile=off"


def train(model: str, data: str, plan: str, fault: str, *arguments: object) -> Result:
    """The result of a training, and when its validation first saw the goal."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        command = (sys.executable, "-m", "manyhands", "train", model, "--data", data, "--plan", f"{plan},{REST}")
        result = output_of((*command, "--set", f"fault.{fault}", *arguments, "--out", out, "--json", "--quiet"))
        reached = [
            float(each["train_seconds"])
            for each in run_folder.load(out).metrics()
            if each.get("val_accuracy", 0.0) >= GOAL
        ]
    return {**result, "seconds_to_goal": reached[0] if reached else None}


def bound(options: argparse.Namespace) -> Iterator[str]:
    steps = options.steps or 10_000
    settings = ("--batch-size", 32, "--epochs", steps, "--set", f"train.max_steps={steps}", "--set", "data.size=4000")
    yield from heading(f"{WORKERS} workers, {steps:,} steps each, {FAULTS[1]}: staleness seen", 1, interleaved=False)
    yield "| over | bound | steps seen | mean | most | steps by staleness |\n| --- | --- | --- | --- | --- | --- |"
    for over in options.over.split(","):
        axis = f"server:{WORKERS}+1" if over == "server" else f"data:{WORKERS},backend={over}"
        for most in (0, 1, STALENESS):
            plan = f"{axis},consistency=stale,staleness={most}"
            seen = train("mlp", "synthetic:1x4x4,3", plan, FAULTS[1], *settings)["staleness"]
            if seen["max"] > most:
                sys.exit(f"{plan}: a step lacked {seen['max']} updates")
            counts = seen["histogram"]
            shown = ", ".join(f"{late}: {number:,}" for late, number in counts.items())
            yield f"| {over} | {most} | {sum(counts.values()):,} | {seen['mean']:.2f} | {seen['max']} | {shown} |"
    yield ""


def speed(options: argparse.Namespace) -> Iterator[str]:
    settings = ("--batch-size", options.batch, "--epochs", options.epochs, "--set", f"model.width={WIDTH}", *RATE)
    limits = ("--set", f"train.max_steps={options.steps}") if options.steps else ()
    for fault in options.fault or FAULTS:
        results: dict[str, list[Result]] = {plan: [] for plan in PLANS}
        for repeat in range(options.repeats):
            for plan in PLANS:
                results[plan].append(train("convnet", "mnist", plan, fault, *settings, *limits, "--seed", repeat))
                last = results[plan][-1]
                told = f"{last['samples_per_s']:,.0f} samples/s, {100 * last['test_accuracy']:.2f} %"
                print(f"repeat {repeat + 1} of {options.repeats}: {plan}: {told}", file=sys.stderr, flush=True)
        title = f"MNIST convnet of width {WIDTH}, batch {options.batch}, {options.epochs} epochs, {fault}"
        yield from heading(title, options.repeats)
        yield f"| plan | samples/s | to {SYNC} | staleness | test accuracy | s to {100 * GOAL:.0f} % |"
        yield "| --- | --- | --- | --- | --- | --- |"
        for plan, mine in results.items():
            late = [each["staleness"]["mean"] for each in mine if each.get("staleness")]
            reached = [each["seconds_to_goal"] for each in mine if each["seconds_to_goal"] is not None]
            missed = len(mine) - len(reached)
            cells = [
                plan,
                spread([each["samples_per_s"] for each in mine]),
                ratio(mine, results[SYNC]),
                f"{statistics.fmean(late):.2f}" if late else "",
                spread([each["test_accuracy"] for each in mine], 2, 100) + " %",
                (spread(reached, 1) if reached else "") + (f" (not in {missed} of {len(mine)})" if missed else ""),
            ]
            yield f"| {' | '.join(cells)} |"
        yield ""


PARTS: dict[str, Callable[[argparse.Namespace], Iterator[str]]] = {"bound": bound, "speed": speed}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument(
        "--over", default="gloo,shm,mpi,server", help="of bound: backends without a server, and a server"
    )
    parser.add_argument("--fault", action="append", help="of speed, instead of both")
    options = parser.parse_args()
    for line in PARTS[options.part](options):
        print(line, flush=True)


if __name__ == "__main__":
    main()
