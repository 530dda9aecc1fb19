"""Makes benchmarks/results/large_batch.md: what LARS and LAMB cost, and how far each optimizer lets the batch grow.

usage: large_batch.py step [--repeats R] [--captured]
       large_batch.py table [--cells FILE] [--device D] [--epochs E] [--seeds S] [--sizes 64,256,…] [--target 0.98]
                            [--samples N] [--recipes momentum;lars;…] [--rates-of D] [--accuracy] [--looks L]
                            [--trained-on M]

step: one update of all weights against torch's SGD with momentum and AdamW, each in its fastest implementation, in
turns; --captured: as a CUDA graph, as serial trainings on a GPU have it. table: the MNIST convnet with every optimizer
at every batch size. The rate of each cell is chosen by the validation part of seed 0 from five: the scaling rule's, a
quarter and four times of it, then half and twice the best of these; plain SGD alone keeps the rate that was best at
batch 256. Steps and seconds are those until the validation part is right to the target, evaluations left out. Every
finished training is a line of FILE: what is there is not trained again. --rates-of takes the rates that were chosen on
another device, by the lines of FILE; --accuracy leaves out the trainings at the rate that is soonest at the target, and
what is told of them. --looks: how often in an epoch the validation part is looked at, where it has as many steps.
--trained-on trains nothing: it prints what FILE holds, which was trained on machine M, with as many seeds as there are.
(MANYHANDS_DATA must hold mnist.)
"""

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from bench import Result, heading, spread
from torch import Tensor, nn

from manyhands.config import Config, with_values
from manyhands.data.dataset import Dataset
from manyhands.data.load import load
from manyhands.engine.loop.evaluate import evaluate
from manyhands.engine.loop.loop import total_steps
from manyhands.machine.process_setup import settle
from manyhands.models import zoo
from manyhands.optim.factory import build, set_lr
from manyhands.optim.lr_scaling import base_rate
from manyhands.optim.lr_schedule import factor
from manyhands.optim.options import OptimOptions
from manyhands.plan.spec import parse
from manyhands.train.job import assemble

SIZES = (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
BASE = 256
AROUND, NEARER = (0.25, 1.0, 4.0), (0.5, 2.0)  # times the rate that the scaling rule gives; times the best of those
PIECE = 256  # samples of which a CPU's cache holds what is between the layers: of a batch of 8,192 1.3 times as fast
FROM, PROPORTIONAL = 1024, 0.8  # steps fall in proportion as long as this share of it is kept


@dataclass(frozen=True)
class Recipe:
    """An optimizer, its rate at batch 256, and how that is scaled."""

    name: str
    lr: float
    scaling: str
    warmup: float = 0.1
    schedule: str = "cosine"


RECIPES = {
    "sgd, unscaled": Recipe("sgd", 0.1, "none", 0.0, "constant"),
    "momentum": Recipe("momentum", 0.02, "linear"),
    "nesterov": Recipe("nesterov", 0.02, "linear"),
    "adam": Recipe("adam", 0.001, "sqrt"),
    "lars": Recipe("lars", 5.0, "linear"),
    "lamb": Recipe("lamb", 0.01, "sqrt"),
}


# The cost of a step.

PAIRS = {"lars": "momentum", "lamb": "adamw"}


def shapes(model: str) -> list[torch.Size]:
    with torch.device("meta"):
        made = zoo.build(model, zoo.Shapes(1000, (3, 224, 224), None))
    return [each.shape for each in made.parameters()]


def updater(name: str, sizes: Sequence[torch.Size], device: str, captured: bool) -> Callable[[], float]:
    """A function that takes one step, and gives its milliseconds."""
    generator = torch.Generator().manual_seed(0)
    parameters = [nn.Parameter(torch.randn(each, generator=generator).to(device)) for each in sizes]
    for each in parameters:
        each.grad = torch.randn(each.shape, generator=generator).to(device)
    options = OptimOptions(name=name, weight_decay=1e-4)
    optimizer = build(parameters, options, 1e-4, best=True, device=device, captured=captured, alone=True)
    update: Callable[[], object] = optimizer.step
    if captured:
        for _ in range(3):
            update()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            update()
        update = graph.replay

    def step(held: object = optimizer) -> float:  # a graph alone does not hold its memory
        begun = time.perf_counter()
        update()
        if device == "cuda":
            torch.cuda.synchronize()
        return 1000 * (time.perf_counter() - begun)

    for _ in range(3):
        step()
    return step


def costs(repeats: int, device: str, captured: bool) -> Iterator[str]:
    how = f"{torch.get_num_threads()} threads" if device == "cpu" else "a CUDA graph" if captured else "eager"
    yield from heading(f"A step of the optimizer, {device}, {how}", repeats)
    yield "| weights of | optimizer | ms | torch's | ms | ratio |\n| --- | --- | --- | --- | --- | --- |"
    for model in ("resnet50", "alexnet"):
        sizes = shapes(model)
        count = f"{model} ({len(sizes)} tensors, {sum(each.numel() for each in sizes) / 1e6:.0f} M)"
        for ours, theirs in PAIRS.items():
            steps = [updater(name, sizes, device, captured) for name in (ours, theirs)]
            times = [[step() for step in steps] for _ in range(repeats)]
            mine, others = zip(*times, strict=True)
            ratios = [one / other for one, other in times]
            yield f"| {count} | {ours} | {spread(mine, 1)} | {theirs} | {spread(others, 1)} | {spread(ratios, 2)} |"
    yield ""


# The table.


@dataclass(frozen=True)
class Cell:
    """One training."""

    recipe: str
    batch: int
    lr: float  # for this batch
    seed: int
    epochs: int
    device: str
    target: float
    samples: int | None  # of the training set; none: all

    def config(self) -> Config:
        own = RECIPES[self.recipe]
        return with_values(
            Config(),
            {
                "model.name": "convnet",
                "data.name": "mnist",
                "data.size": self.samples,
                "optim.name": own.name,
                "optim.lr": self.lr,
                "optim.schedule": own.schedule,
                "optim.warmup": own.warmup,
                "train.batch_size": self.batch,
                "train.epochs": self.epochs,
                "train.seed": self.seed,
                "train.accumulate": max(self.batch // PIECE, 1) if self.device == "cpu" else 1,
            },
        )


PLANS = {
    "cpu": "serial,device=cpu,precision=bf16,layout=channels_last,kernels=own,compile=off,capture=off,feed=device",
    "cuda": "serial,device=cuda,precision=bf16,layout=channels_last,kernels=torch,compile=off,capture=on,feed=device",
}


def trained(cell: Cell, dataset: Dataset, looks: int) -> Result:
    """Train a cell; the validation part is looked at several times an epoch, which no clock counts."""
    config = cell.config()
    job = assemble(config, parse(f"{PLANS[cell.device]},workers=0"), dataset)
    torch.manual_seed(cell.seed)
    feed, validation = job.context.feed, job.validation
    assert validation is not None
    total, every = total_steps(cell.epochs, None, feed.count), max(len(feed) // looks, 1)
    seconds, step, reached, accuracy = 0.0, 0, None, 0.0
    job.context.model.train()
    begun = time.perf_counter()
    for epoch in range(cell.epochs):
        for number, batch in enumerate(feed.epoch(epoch)):
            set_lr(job.context.optimizer, job.lr * factor(config.optim, step, total))
            loss: Tensor = job.step(batch, feed.share(number, epoch))
            step += 1
            if step % every and step < total:
                continue
            finite = math.isfinite(loss.item())  # waits for the device
            seconds += time.perf_counter() - begun
            accuracy = evaluate(job.context, validation).accuracy if finite else 0.0
            if reached is None and accuracy >= cell.target:
                reached = {"steps_to_target": step, "seconds_to_target": seconds}
            if not finite:
                return {"diverged": True, "val_accuracy": 0.0, "test_accuracy": None}
            begun = time.perf_counter()
    score = evaluate(job.context, job.test)
    return {
        "diverged": False,
        "val_accuracy": accuracy,
        "test_accuracy": score.accuracy,
        "steps": step,
        "seconds": seconds,
        **(reached or {}),
    }


class Cells:
    """Trainings, each done once; finished ones are lines of a file."""

    def __init__(self, path: Path, trains: bool, looks: int) -> None:
        self.path, self.known, self.trains, self.looks = path, {}, trains, looks
        for line in path.read_text().splitlines() if path.exists() else ():
            told = json.loads(line)
            self.known[Cell(**told["cell"])] = told["result"]
        self.dataset: Dataset | None = None

    def __call__(self, cell: Cell) -> Result:
        if cell not in self.known:
            if not self.trains:
                raise SystemExit(f"error: {self.path} lacks {cell}; leave out --trained-on to train it here")
            self.dataset = self.dataset or load("mnist", cell.config().data)
            self.known[cell] = trained(cell, self.dataset, self.looks)
            with self.path.open("a") as file:
                file.write(json.dumps({"cell": vars(cell), "result": self.known[cell]}) + "\n")
            print(f"{cell}: {self.known[cell]}", file=sys.stderr, flush=True)
        result: Result = self.known[cell]
        return result


def quality(result: Result) -> tuple[float, float]:
    """For the choice of a rate: soonest at the target, then the best validation accuracy."""
    return -result.get("steps_to_target", math.inf), result["val_accuracy"]


def chosen(cells: Cells, make: Callable[..., Cell], recipe: str, batch: int) -> list[float]:
    """The rate that is soonest at the target, and the one that ends with the best validation accuracy."""
    own = RECIPES[recipe]
    options = OptimOptions(name=own.name, lr=own.lr, scaling=own.scaling, base_batch=BASE)
    at = BASE if own.scaling == "none" else batch
    results: dict[float, Result] = {}
    nearest = base_rate(options, own.lr, at)
    for steps in (AROUND, NEARER):
        for rate in [times * nearest for times in steps]:
            results[rate] = cells(make(recipe=recipe, batch=at, lr=rate, seed=0))
        nearest = max(results, key=lambda rate: quality(results[rate]))
    return [nearest, max(results, key=lambda rate: float(results[rate]["val_accuracy"]))]


def row(cells: Cells, make: Callable[..., Cell], recipe: str, batch: int, told: argparse.Namespace) -> Result:
    soonest, best = chosen(cells, partial(make, device=told.rates_of or told.device), recipe, batch)
    soonest = best if told.accuracy else soonest

    def seeds(rate: float) -> list[Result]:
        asked = [make(recipe=recipe, batch=batch, lr=rate, seed=seed) for seed in range(told.seeds)]
        return [cells(each) for each in asked if cells.trains or each in cells.known]

    soon, ends = seeds(soonest), seeds(best)
    came = [each for each in soon if "steps_to_target" in each]
    return {
        "recipe": recipe,
        "batch": batch,
        "soonest": soonest,
        "best": best,
        "steps": [each["steps_to_target"] for each in came],
        "seconds": [each["seconds_to_target"] for each in came],
        "of": len(soon),
        "ended": len(ends),
        "tested": [each["test_accuracy"] for each in ends if not each["diverged"]],
    }


def table(told: argparse.Namespace) -> Iterator[str]:
    cells = Cells(told.cells, trains=not told.trained_on, looks=told.looks)

    def make(**own: Any) -> Cell:
        same = {"epochs": told.epochs, "device": told.device, "target": told.target, "samples": told.samples}
        return Cell(**{**same, **own})

    rows = [row(cells, make, recipe, batch, told) for recipe in told.recipes for batch in told.sizes]
    goal = f"{100 * told.target:g} %"
    title = f"MNIST convnet, {told.epochs} epochs, {told.device}"
    title += "" if told.accuracy else f", to {goal} of the validation part"
    seeds = f"up to {told.seeds}" if told.trained_on else told.seeds
    yield from heading(title, seeds, interleaved=False, machine=told.trained_on)
    soon = ["rate to " + goal, "steps", "seconds", "came there"]
    heads = ["optimizer", "batch", *([] if told.accuracy else soon), "rate for accuracy", "seeds", "test accuracy"]
    yield f"| {' | '.join(heads)} |\n|{' --- |' * len(heads)}"
    for each in rows:
        parts = [each["recipe"], f"{each['batch']:,}"]
        if not told.accuracy:
            parts += [
                f"{each['soonest']:g}",
                spread(each["steps"], 0) if each["steps"] else "",
                spread(each["seconds"], 2) if each["steps"] else "",
                f"{len(each['steps'])} of {each['of']}",
            ]
        parts += [f"{each['best']:g}", str(each["ended"])]
        parts.append(spread(each["tested"], 2, 100) + " %" if each["tested"] else "diverged")
        yield f"| {' | '.join(parts)} |"
    yield ""
    if not told.accuracy:
        yield from proportion(rows)


def proportion(rows: Sequence[Result]) -> Iterator[str]:
    """How far past 1,024 steps to the target fall as the batch grows."""
    for recipe in dict.fromkeys(each["recipe"] for each in rows):
        mean = {
            each["batch"]: statistics.fmean(each["steps"])
            for each in rows
            if each["recipe"] == recipe and len(each["steps"]) == each["of"]
        }
        larger = sorted(batch for batch in mean if batch > FROM)
        if FROM not in mean:
            yield f"- {recipe}: not all seeds come to the target at batch {FROM:,}."
            continue
        kept = {batch: mean[FROM] / mean[batch] / (batch / FROM) for batch in larger}
        far = FROM
        for batch in larger:
            if kept[batch] < PROPORTIONAL:
                break
            far = batch
        shares = (
            ", ".join(f"{100 * share:.0f} % at {batch:,}" for batch, share in kept.items()) or "none larger came there"
        )
        yield (
            f"- {recipe}: in proportion (at least {100 * PROPORTIONAL:.0f} %) up to {far:,}, {far / FROM:g} times "
            f"{FROM:,}; kept: {shares}."
        )
    yield ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="part", required=True)
    step = commands.add_parser("step")
    step.add_argument("--repeats", type=int, default=30)
    step.add_argument("--captured", action="store_true")
    trains = commands.add_parser("table")
    trains.add_argument("--cells", type=Path, default=Path("large_batch.jsonl"))
    trains.add_argument("--epochs", type=int, default=20)
    trains.add_argument("--seeds", type=int, default=5)
    trains.add_argument("--sizes", type=lambda text: [int(each) for each in text.split(",")], default=list(SIZES))
    trains.add_argument("--target", type=float, default=0.98)
    trains.add_argument("--samples", type=int)
    trains.add_argument("--rates-of", choices=("cpu", "cuda"))
    trains.add_argument("--accuracy", action="store_true")
    trains.add_argument("--looks", type=int, default=10)
    trains.add_argument("--trained-on")
    trains.add_argument("--recipes", type=lambda text: text.split(";"), default=list(RECIPES))
    for each in (step, trains):
        each.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    told = parser.parse_args()
    if told.part == "step" and told.captured and told.device == "cpu":
        parser.error("--captured: CUDA graphs need --device cuda")
    settle(allocator="keep" if told.device == "cpu" else "default")
    for line in costs(told.repeats, told.device, told.captured) if told.part == "step" else table(told):
        print(line, flush=True)


if __name__ == "__main__":
    main()
