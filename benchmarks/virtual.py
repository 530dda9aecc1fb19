"""The virtual cluster: what it costs beside its gradients, and how near it comes to real workers.

python benchmarks/virtual.py cost    64 virtual workers against the same number of gradients, one after the other
python benchmarks/virtual.py real    predicted against measured time per epoch and accuracy, 2 and 4 workers
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence

from bench import Result, heading, output_of, spread, train

from manyhands.config import Config, with_values
from manyhands.data.dataset import Dataset
from manyhands.data.load import load
from manyhands.plan.spec import parse
from manyhands.simulate.cluster.train import check, learner_of
from manyhands.simulate.cluster.worker_timing import Wanted, described_pace
from manyhands.simulate.worker_processes import Workers

MACHINE = "edge4-1gbe"
WORKERS = 64
BATCHES = {4096: 2, 256: 20}  # 64 and 4 samples a worker; and steps, with averagings among the latter
SAME = "precision=fp32,layout=channels_last,kernels=own"  # what would otherwise be bound by trials
KINDS = (
    "data:{0}",
    "server:{0}+1",
    "server:{0}+1,consistency=stale,staleness=4",
    "data:{0},consistency=stale,staleness=4",
    "server:{0}+1,consistency=async",
    "local:{0},every=8",
    "local:{0},every=8,average=elastic",
    "gossip:{0},topology=ring",
    "gossip:{0},topology=exponential",
    "gossip:{0},topology=pairs",
)


def cost(repeats: int) -> Iterator[str]:
    """Seconds of a training without its evaluations, over those of its gradients alone."""
    yield from heading(f"What {WORKERS} virtual workers cost", repeats)
    yield f"convnet on MNIST in {WORKERS} parts; adam; a gradient of each part, without an update, against all of it.\n"
    yield "| plan | batch | gradients, s | virtual cluster, s | ratio |\n| --- | --- | --- | --- | --- |"
    for batch, steps in BATCHES.items():
        values = {"model.name": "convnet", "data.name": "mnist", "train.batch_size": batch, "train.max_steps": steps}
        config = with_values(Config(), values)
        dataset = load(config.data.name, config.data)
        plans = [kind.format(WORKERS) for kind in KINDS]
        one(plans[0], config, dataset)  # the first gradients of a process take longer
        taken = [[one(words, config, dataset) for words in plans] for _ in range(repeats)]
        for number, words in enumerate(plans):
            alone, virtual = zip(*(row[number] for row in taken), strict=True)
            ratios = [two / first for first, two in zip(alone, virtual, strict=True)]
            yield f"| {words} | {batch} | {spread(alone, 2)} | {spread(virtual, 2)} | {spread(ratios, 3)} |"


def one(words: str, config: Config, dataset: Dataset) -> tuple[float, float]:
    """Seconds of the gradients one after the other, and of the virtual cluster, in turn."""
    return alone(config, dataset), virtual(words, config, dataset)


def alone(config: Config, dataset: Dataset) -> float:
    learner = learner_of(config, parse("data:1"), dataset)
    learner.workers = WORKERS
    parts = learner.begin(0, 0)
    begun = time.perf_counter()
    for batch, sizes in enumerate(parts):
        for part in range(len(sizes)):
            learner.gradients(learner.part(batch, part), len(learner.rows[batch]))
    return time.perf_counter() - begun


def virtual(words: str, config: Config, dataset: Dataset) -> float:
    plan = check(parse(words), config, MACHINE, 1.0)
    plan, pace = described_pace(Wanted(config, plan, [config.train.batch_size // WORKERS]), MACHINE)
    learner = learner_of(config, plan, dataset)
    parts = learner.begin(0, 0)
    begun = time.perf_counter()
    for act in learner.acts(Workers(pace, parts, [0] * WORKERS)):
        learner.obey(act)
    taken = time.perf_counter() - begun
    assert learner.samples == sum(map(sum, parts))
    return taken


def real(repeats: int, epochs: int, workers: Sequence[int], sets: Sequence[str]) -> Iterator[str]:
    """The same plans, seeds and epochs on virtual and on real workers of this machine."""
    yield from heading("Virtual against real workers", repeats)
    yield f"convnet on MNIST, batch 256, {epochs} epochs, seeds 0 to {repeats - 1}{', '.join(['', *sets])}.\n"
    yield (
        "| plan | s/epoch virtual | s/epoch real | error | accuracy virtual | accuracy real | points apart |\n"
        "| --- | --- | --- | --- | --- | --- | --- |"
    )
    plans = [kind.format(number) for number in workers for kind in KINDS]
    made: dict[str, list[tuple[Result, Result]]] = {words: [] for words in plans}
    failed: dict[str, str] = {}
    for seed in range(repeats):
        with tempfile.TemporaryDirectory() as home:
            os.environ["MANYHANDS_HOME"] = home  # layers and links are timed anew, so that errors are independent
            for words in plans:
                try:
                    made[words].append(both(words, epochs, seed, sets))
                except subprocess.CalledProcessError as error:
                    failed[words] = f"exit code {error.returncode}"
                print(f"seed {seed}: {words}", file=sys.stderr, flush=True)
    for words in plans:
        yield f"| {words} | failed: {failed[words]} | | | | | |" if words in failed else row(words, made[words], epochs)


def both(words: str, epochs: int, seed: int, sets: Sequence[str]) -> tuple[Result, Result]:
    plan = f"{words},{SAME}"
    told = ("--epochs", epochs, "--seed", seed, *(word for each in sets for word in ("--set", each)))
    command = (sys.executable, "-m", "manyhands", "simulate", "convnet", "--data", "mnist", "--plan", plan)
    return output_of((*command, "--accuracy", *told, "--json", "--quiet")), train("convnet", "mnist", plan, *told)


def row(words: str, pairs: Sequence[tuple[Result, Result]], epochs: int) -> str:
    predicted = [virtual["virtual_seconds"] / epochs for virtual, _ in pairs]
    measured = [real["seconds"]["train"] / epochs for _, real in pairs]
    errors = [one / two - 1 for one, two in zip(predicted, measured, strict=True)]
    accuracies = [[virtual["accuracy"] for virtual, _ in pairs], [real["test_accuracy"] for _, real in pairs]]
    apart = [one - two for one, two in zip(*accuracies, strict=True)]
    return (
        f"| {words} | {spread(predicted, 2)} | {spread(measured, 2)} | {spread(errors, 1, 100)} % "
        f"| {spread(accuracies[0], 2, 100)} % | {spread(accuracies[1], 2, 100)} % | {spread(apart, 2, 100)} |"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["cost", "real"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--workers", default="2,4", help="numbers of real workers")
    parser.add_argument("--set", action="append", default=[], help="of both trainings, such as fault.slow_rank=1:3x")
    given = parser.parse_args()
    numbers = [int(each) for each in given.workers.split(",")]
    lines = cost(given.repeats) if given.part == "cost" else real(given.repeats, given.epochs, numbers, given.set)
    for line in lines:
        print(line, flush=True)
