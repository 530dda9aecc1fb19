"""Predicted against measured steps: what the simulator says of plans that it has not seen run.

python benchmarks/prediction.py costs FILE      times layers and links; for other numbers of samples than the plans have
python benchmarks/prediction.py measure FILE    predicts from that file alone, lets the plans train, prints the table

Both take --ranks: with how many ranks to train beside one process, such as 4,16 (default: all numbers that fit); and
--passes, so many minutes apart, of which for each plan the fastest counts, on both sides: machines are shared.
"""

import argparse
import json
import os
import statistics
import tempfile
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

from manyhands.config import Config, with_values
from manyhands.files import write_json
from manyhands.graph.coarsen import coarsen
from manyhands.machine.detect import detect
from manyhands.machine.machine import Machine
from manyhands.measure.layer_profiler import profiles
from manyhands.measure.link_timing import known_links
from manyhands.measure.plan_benchmark import BenchmarkResult, benchmark
from manyhands.plan.plan import Plan
from manyhands.plan.spec import parse
from manyhands.simulate.cost.layer_profile import Profile
from manyhands.simulate.cost.links import Links
from manyhands.simulate.from_profile import predicted
from manyhands.simulate.model_graph import graph_of
from manyhands.train.plan_constraints import resolve

# Model, data, batch, and what makes a step short enough for a core.
CASES: list[tuple[str, str, int, dict[str, Any]]] = [
    ("convnet", "synthetic:1x28x28,10", 128, {}),
    ("alexnet", "synthetic:3x64x64,200", 64, {"model.head": "6x6"}),
    ("resnet18", "synthetic:3x32x32,10", 32, {"model.width": 0.5}),
    ("text", "synthetic:text:64,20", 128, {}),
    ("transformer", "synthetic:text:64,20", 64, {}),
]
BOUND = "device=cpu,kernels=own,compile=off,capture=off,feed=device,workers=0"
BESIDE = (0.7, 1.5)  # of a rank's samples: the sizes at which layers are timed, neither of them the plan's


def plans(numbers: list[int], images: bool) -> list[str]:
    """One process and several ranks, in both precisions, over both backends."""
    layout = "channels_last" if images else "contiguous"
    words = [f"serial,precision={precision}" for precision in ("fp32", "bf16")]
    words += [f"data:{number},precision={precision}" for number in numbers for precision in ("fp32", "bf16")]
    words += [f"data:{number},precision=fp32,backend=gloo" for number in numbers[-1:]]
    return [f"{each},layout={layout},{BOUND}" for each in words]


def cases(machine: Machine, ranks: list[int]) -> list[tuple[Config, list[Plan]]]:
    made, cores = [], machine.physical_cores
    numbers = ranks or [number for number in (2, 4, 8, 16) if cores % number == 0 and number <= cores]
    for model, data, batch, more in CASES:
        values = {"model.name": model, "data.name": data, "train.batch_size": batch, "data.size": 2000, **more}
        config = with_values(Config(), values)
        words = plans(numbers, "text" not in data)
        made.append((config, [resolve(parse(each), config, machine) for each in words]))
    return made


def rank_share(config: Config, plan: Plan) -> int:
    return -(-config.train.batch_size // plan.world)


def costs(path: Path, ranks: list[int], passes: int) -> None:
    """Time layers at sizes beside the plans', and links."""
    machine = detect()
    kept: dict[str, Any] = {"profiles": {}, "links": {}}
    for number in range(passes):
        with tempfile.TemporaryDirectory() as home:  # nothing is remembered from before
            os.environ["MANYHANDS_HOME"] = home
            for config, chosen in cases(machine, ranks):
                for plan in chosen:
                    _cost(config, plan, machine, kept)
                    print(f"pass {number + 1}: {config.model.name} {plan.name}", flush=True)
    write_json(path, kept)


def _cost(config: Config, plan: Plan, machine: Machine, kept: dict[str, Any]) -> None:
    share = rank_share(config, plan)
    sizes = sorted({max(round(factor * share), 1) for factor in BESIDE} - {share})
    alone = plan if plan.world == 1 else replace(plan, backend="shm")  # layers do not know the backend
    (profile,) = profiles(config, [alone], sizes, machine)
    name = f"{config.model.name} {plan}"
    if name not in kept["profiles"] or _whole(profile) < _whole(Profile.from_json(kept["profiles"][name])):
        kept["profiles"][name] = profile.to_json()
    if plan.world > 1:
        links, between = known_links(plan.backend or "shm", plan.world, machine), f"{plan.backend} {plan.world}"
        before = kept["links"].get(between)
        if before is None or links.small.latency_us < Links.from_json(before).small.latency_us:
            kept["links"][between] = links.to_json()


def _whole(profile: Profile) -> int:
    """What all layers take together at the largest size."""
    return sum(sum(pairs[-1]) for pairs in profile.layers.values())


def measure(path: Path, ranks: list[int], rounds: int, passes: int) -> None:
    """Predict from the file, train, and print."""
    machine, kept = detect(), json.loads(path.read_text())
    rows = []
    for config, chosen in cases(machine, ranks):
        graph = coarsen(graph_of(config))
        for plan in chosen:
            profile = Profile.from_json(kept["profiles"][f"{config.model.name} {plan}"])
            told = kept["links"].get(f"{plan.backend} {plan.world}")
            links = Links.from_json(told) if told else None
            step_ms = predicted(graph, plan, profile, links, config, machine).result.step_ms
            rows.append((config, step_ms, BenchmarkResult(plan, ())))
    for _ in range(passes):
        turns = [turn for config, chosen in cases(machine, ranks) for turn in benchmark(config, chosen, rounds)]
        rows = [
            (config, told, min(turn, before, key=lambda each: each.step_ms))
            for (config, told, before), turn in zip(rows, turns, strict=True)
        ]
    print(f"{machine}\n")
    print("| model | batch | plan | predicted ms | measured ms | error |\n| --- | --- | --- | --- | --- | --- |")
    for config, told, turn in rows:
        spread = f"{turn.step_ms:.2f} ± {deviation(turn):.2f}" if turn.rounds else f"failed: {turn.error}"
        error = f"{100 * (told / turn.step_ms - 1):+.1f} %" if turn.rounds else ""
        words = f"{turn.plan.name}, {turn.plan.precision}{', ' + turn.plan.backend if turn.plan.backend else ''}"
        print(f"| {config.model.name} | {config.train.batch_size} | {words} | {told:.2f} | {spread} | {error} |")
    good = [(config, told, turn) for config, told, turn in rows if turn.rounds]
    errors = [abs(told / turn.step_ms - 1) for _, told, turn in good]
    print(
        f"\n{len(good)} pairs: median error {100 * statistics.median(errors):.1f} %, worst {100 * max(errors):.1f} %; "
        f"order of plans of one model: {order(good)}"
    )


def deviation(turn: BenchmarkResult) -> float:
    return statistics.stdev(turn.rounds) if len(turn.rounds) > 1 else 0.0


def order(rows: list[tuple[Config, float, BenchmarkResult]]) -> str:
    """Kendall's tau over pairs of one model whose measured times differ by more than two deviations."""
    agree = other = 0
    for (one, told, turn), (two, told_two, turn_two) in combinations(rows, 2):
        if one != two:
            continue
        apart = turn.step_ms - turn_two.step_ms
        if abs(apart) > 2 * max(deviation(turn), deviation(turn_two)):
            agree += (told - told_two) * apart > 0
            other += (told - told_two) * apart <= 0
    return f"Kendall's tau {(agree - other) / (agree + other):.2f} over {agree + other} pairs"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["costs", "measure"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--passes", type=int, default=2)
    parser.add_argument("--ranks", default="")
    given = parser.parse_args()
    numbers = [int(each) for each in given.ranks.split(",") if each]
    if given.part == "costs":
        costs(given.file, numbers, given.passes)
    else:
        measure(given.file, numbers, given.rounds, given.passes)
