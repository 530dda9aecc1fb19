"""How long a search for AlexNet's plan takes, and how near it comes to what can be found.

usage: search.py time [--repeats 3] [--long 60]     full and delta simulation beside the FlexFlow paper's table
       search.py large [--repeats 3]                256 and 4,096 devices
       search.py exact                              beside dynamic programming, where that can be

All on one core. Compilation is done before, and told apart.
"""

import argparse
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from bench import heading, spread

from manyhands.config import Config, with_values
from manyhands.machine.cluster import Level
from manyhands.plan.sharding import Split
from manyhands.plan.spec import parse
from manyhands.progress import set_quiet
from manyhands.simulate.search.annealing import Found, default_proposals, search
from manyhands.simulate.search.dynamic_programming import exact
from manyhands.simulate.search.space import Space
from manyhands.simulate.simulator import Simulator
from manyhands.simulate.step.arrays import Problem
from manyhands.tune.plan.described_machine import presets_of

# Seconds on a server of the paper's cluster, full and delta, by devices.
PUBLISHED = {4: (0.11, 0.04), 8: (0.40, 0.13), 16: (1.4, 0.48), 32: (5.3, 1.8), 64: (18, 5.9)}
IMAGENET, MNIST = "synthetic:3x224x224,1000", "synthetic:1x28x28,10"
AUTO = parse("auto")
# Every proposal built and played whole, to the end; the same, but left when it is seen to be refused; only what a
# proposal changes; the same, but left likewise, which is what manyhands does.
WAYS = {"full": (False, True), "full, left": (False, False), "delta, whole": (True, True), "delta": (True, False)}


@dataclass(frozen=True)
class Task:
    """A model on so many devices of a machine."""

    simulator: Simulator
    batch: int
    devices: int

    @property
    def proposals(self) -> int:
        return default_proposals(len(self.simulator.graph.layers), self.devices)

    def starts(self) -> dict[str, tuple[Split, ...]]:
        presets, _ = presets_of(self.simulator, AUTO, self.batch, self.devices)
        return {each.plan.name: each.splits for each in presets}

    def problem(self) -> tuple[Problem, Space]:
        problem = self.simulator.problem(AUTO, self.batch, self.devices)
        return problem, Space.of(self.simulator.graph, self.batch, self.devices)

    def search(self, proposals: int, seed: int, way: str = "delta") -> tuple[Found, float]:
        """What is found, and the seconds: for the costs of all splits, and for the walks."""
        starts, (delta, patient) = self.starts(), WAYS[way]
        begun = time.perf_counter()
        problem, space = self.problem()
        found = search(problem, space, starts, proposals, seed, delta, patient)
        return found, time.perf_counter() - begun

    def long(self, seconds: float, short: tuple[Found, float]) -> tuple[Found, float]:
        """A search of about so many seconds, judged by a short one."""
        each = max(short[1] / short[0].proposals, 1e-7)
        return self.search(int(seconds / each), 1000)


def simulator(model: str, data: str, machine: str) -> Simulator:
    return Simulator.of(with_values(Config(), {"model.name": model, "data.name": data}), machine)


def times(repeats: int, seconds: float) -> Iterator[str]:
    alexnet = simulator("alexnet", IMAGENET, "p100x4-ib")
    begun = time.perf_counter()
    Task(alexnet, 256, 4).search(10, 0)
    compiled = time.perf_counter() - begun
    yield from heading("AlexNet, ImageNet, batch 256, on nodes of four P100: seconds of a search", repeats)
    columns = ("devices", "proposals", *WAYS, "full / delta", "published full", "delta", "full / delta", "step ms")
    yield _line(*columns, f"step of a search of {seconds:.0f} s", "longer by")
    yield _line(*["---:"] * (len(columns) + 2))
    for devices, (full, delta) in PUBLISHED.items():
        task = Task(alexnet, 256, devices)
        taken: dict[str, list[float]] = {way: [] for way in WAYS}
        steps: list[int] = []
        for seed in range(repeats):
            found = {way: task.search(task.proposals, seed, way) for way in WAYS}
            assert len({(each.splits, each.step_ns) for each, _ in found.values()}) == 1, "all find the same"
            for way, (_, spent) in found.items():
                taken[way].append(spent)
            steps.append(found["delta"][0].step_ns)
        long, spent = task.long(seconds, found["delta"])
        best = min(long.step_ns, *steps)
        ratios = [one / two for one, two in zip(taken["full"], taken["delta"], strict=True)]
        yield _line(
            devices,
            f"{task.proposals:,}",
            *(spread(each, 3) for each in taken.values()),
            spread(ratios, 2),
            full,
            delta,
            f"{full / delta:.2f}",
            spread(steps, 3, 1e-6),
            f"{long.step_ns / 1e6:.3f} ({spent:.0f} s, {long.proposals:,} proposals)",
            f"{100 * (statistics.fmean(steps) / best - 1):.2f} %, at most {100 * (max(steps) / best - 1):.2f} %",
        )
    yield (
        f"\n{compiled:.1f} s to compile the search, or to read it as it was compiled before, in no row. *full* builds "
        "and plays every proposal whole, *delta, whole* repairs what it changes; *full, left* and *delta* leave a "
        "simulation as soon as it is sure that the proposal is refused. All four find the same plan. The published "
        "times are the FlexFlow paper's, on other hardware, in another language, over another space of splits and with "
        "a number of proposals that it does not print: they are beside ours for orientation."
    )


def large(repeats: int) -> Iterator[str]:
    alexnet = simulator("alexnet", IMAGENET, "p100x4-ib")
    Task(alexnet, 256, 4).search(10, 0)
    yield from heading("AlexNet, ImageNet, on many nodes of four P100", repeats)
    yield _line("devices", "batch", "proposals", "seconds", "step ms", "fastest preset", "its step ms", "faster by")
    yield _line(*["---:"] * 8)
    for devices in (256, 1024, 4096):
        task = Task(alexnet, devices, devices)
        presets, _ = presets_of(alexnet, AUTO, devices, devices)
        best = min(presets, key=lambda each: each.result.step_ns)
        made = [task.search(task.proposals, seed) for seed in range(repeats)]
        steps = [found.step_ns / 1e6 for found, _ in made]
        yield _line(
            f"{devices:,}",
            f"{devices:,}",
            f"{task.proposals:,}",
            spread([spent for _, spent in made], 1),
            spread(steps, 3),
            best.plan.name,
            f"{best.result.step_ms:.3f}",
            f"{best.result.step_ms / statistics.fmean(steps):.2f}x",
        )


def near(repeats: int) -> Iterator[str]:
    yield from heading("The chain beside dynamic programming", repeats)
    yield _line("model, on", "devices", "plans", "exact ms", "seconds", "chain ms", "seconds", "chain / exact")
    yield _line("---", *["---:"] * 7)
    cases = {
        f"{model}, cpu16": simulator(model, data, "cpu16")
        for model, data in (("mlp", MNIST), ("convnet", MNIST), ("alexnet", IMAGENET))
    }
    # Devices so fast and links so slow that what is best changes from layer to layer.
    small = simulator("alexnet", "synthetic:3x64x64,200", "p100x4-ib")
    slow = replace(small.cluster, overlap=False, levels=(Level(1, 4.0, 5.0),))
    cases["alexnet of 64x64, P100 without overlap over 4 GB/s"] = replace(small, cluster=slow)
    for name, made in cases.items():
        for devices in (2, 4, 8, 16):
            yield _near(name, Task(made, 64, devices), repeats)
    yield (
        "\nExact: the fastest of all plans that begin at the first device and whose neighbouring layers hand over in "
        "step (dynamic_programming.py). The chain looks at others too, so it may be below 1; here it starts from the "
        "presets alone, while `manyhands plan` starts from the exact plan as well."
    )


def _near(name: str, task: Task, repeats: int) -> str:
    begun = time.perf_counter()
    best = exact(*task.problem())
    spent = time.perf_counter() - begun
    found = [task.search(task.proposals, seed) for seed in range(repeats)]
    steps = [each.step_ns for each, _ in found]
    return _line(
        name,
        task.devices,
        f"{best.plans:.2g}",
        f"{best.step_ns / 1e6:.3f}",
        f"{spent:.2f}",
        spread(steps, 3, 1e-6),
        spread([each for _, each in found], 2),
        f"{statistics.fmean(steps) / best.step_ns:.4f}, at most {max(steps) / best.step_ns:.4f}",
    )


def _line(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["time", "large", "exact"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--long", type=float, default=60)
    given = parser.parse_args(arguments)
    set_quiet(True)
    lines = {"time": lambda: times(given.repeats, given.long), "large": lambda: large(given.repeats)}
    for line in lines.get(given.part, lambda: near(given.repeats))():
        print(line, flush=True)


if __name__ == "__main__":
    main()
