"""Makes benchmarks/results/single_device.md: plain PyTorch and one device at its best, in one interleaved run.

usage: single_device.py cpu | gpu | target | accuracy  [--repeats R]      (MANYHANDS_DATA must hold mnist)

Each part prints a section of Markdown: cpu and gpu the speeds beside the usual script, target the time to 99 %
of MNIST's test images on a GPU, accuracy what the models reach. Every training is a process of its own.
"""

import argparse
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench import Result, heading, ratio, spread, train, usual

from manyhands.api import fit
from manyhands.progress import set_quiet


def speeds(part: str, repeats: int, batch: int, epochs: int, plans: Sequence[str]) -> Iterator[str]:
    """Plans and the usual script, A B C A B C."""
    scripts: dict[str, tuple[object, ...]] = {"the usual script": ()}
    if part == "gpu":
        scripts["the usual script, 4 workers"] = ("--workers", 4)
    if find_spec("torchvision"):
        scripts["the usual script on torchvision"] = ("--torchvision",)
    results: dict[str, list[Result]] = {name: [] for name in [*scripts, *plans]}
    for repeat in range(repeats):
        for name, arguments in scripts.items():
            results[name].append(usual(batch, repeat, epochs, *arguments))
        for plan in plans:
            results[plan].append(
                train("convnet", "mnist", plan, "--batch-size", batch, "--epochs", epochs, "--seed", repeat)
            )
        print(f"repeat {repeat + 1} of {repeats} done", file=sys.stderr, flush=True)
    yield from heading(f"MNIST convnet, batch {batch}, {epochs} epoch{'s' * (epochs > 1)}, {part}", repeats)
    if part == "gpu":
        yield "| plan | samples/s | to plain | to plain,workers=4 | test accuracy | training s | compile s | total s |"
        yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    else:
        yield "| plan | samples/s | to plain | test accuracy | training s | total s |"
        yield "| --- | --- | --- | --- | --- | --- |"
    for name, mine in results.items():
        cells = [name, spread([each["samples_per_s"] for each in mine]), ratio(mine, results["plain"])]
        if part == "gpu":
            cells.append(ratio(mine, results["plain,workers=4"]))
        cells.append(spread([each["test_accuracy"] for each in mine], 2, 100) + " %")
        if "seconds" in mine[0]:
            phases = ("train", "compile", "total") if part == "gpu" else ("train", "total")
            cells += [spread([each["seconds"][phase] for each in mine], 2) for phase in phases]
        else:
            cells += [""] * (3 if part == "gpu" else 2)
        yield f"| {' | '.join(cells)} |"
    yield f"\n`serial` was bound to `{results['serial'][0]['plan']}`.\n"


def trained(plan: str, seed: int, **settings: Any) -> Result:
    """One training in this process: for many short ones, where importing torch would take longest."""
    with tempfile.TemporaryDirectory() as folder:
        run = fit(
            "convnet", "mnist", plan, epochs=3, batch_size=512, seed=seed, out=Path(folder) / "run",
            optim__schedule="one-cycle", **settings,
        )  # fmt: skip
    assert run.result is not None
    return run.result


def target(repeats: int) -> Iterator[str]:
    """MNIST to 99 %: settings chosen on 10,000 validation images, then fresh seeds on the test images."""
    set_quiet(True)
    plan = "serial,precision=bf16,layout=channels_last,compile="
    yield from heading(
        "MNIST convnet to 99 % of the test images, batch 512, 3 epochs, Adam, one-cycle", repeats, interleaved=False
    )
    tried: dict[tuple[float, float], float] = {}
    for lr in (0.003, 0.005, 0.008, 0.012):
        for smoothing in (0.0, 0.1):
            settings = {"optim__lr": lr, "train__label_smoothing": smoothing, "data__validation": 1 / 6}
            scores = [trained(f"{plan}off", 100 + seed, **settings)["val_accuracy"] for seed in range(3)]
            tried[lr, smoothing] = statistics.fmean(scores)
    lr, smoothing = max(tried, key=lambda key: tried[key])
    yield "Validation accuracy, 10,000 images held out, mean of 3 seeds:\n"
    yield "| rate | label smoothing | validation accuracy |\n| --- | --- | --- |"
    for (rate, smooth), score in tried.items():
        yield f"| {rate} | {smooth} | {100 * score:.3f} % |"
    yield f"\nChosen: rate {lr}, label smoothing {smoothing}. On the test images, {repeats} other seeds:\n"
    yield "| plan | test accuracy | training s | samples/s | compile and capture s | evaluation s |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for compiled in ("on", "off"):
        chosen = {"optim__lr": lr, "train__label_smoothing": smoothing}
        mine = [trained(plan + compiled, seed, **chosen) for seed in range(repeats)]
        cells = [f"serial,compile={compiled}", spread([each["test_accuracy"] for each in mine], 3, 100) + " %"]
        cells += [
            spread([each["seconds"]["train"] for each in mine], 3),
            spread([each["samples_per_s"] for each in mine]),
        ]
        cells += [spread([each["seconds"][phase] for each in mine], 2) for phase in ("compile", "eval")]
        yield f"| {' | '.join(cells)} |"
    yield "\nTraining s leaves out the first four of the 336 steps: they compile and capture, and are counted there."
    yield "All seeds in one process; only the first compilation is cold.\n"


def accuracy(repeats: int) -> Iterator[str]:
    cases = (
        (
            "convnet",
            "mnist",
            ("--epochs", 8, "--set", "optim.schedule=one-cycle", "--set", "optim.lr=0.002"),
            "99.11 %",
        ),
        ("text", "tweets", ("--epochs", 3), "30.0 % (linear bag of words)"),
        ("mlp", "adult", ("--epochs", 5), "85.3 % (logistic regression)"),
    )
    yield from heading("What the models reach on the test part", repeats, interleaved=False)
    yield "| model | data | settings | test accuracy | published or simple reference |"
    yield "| --- | --- | --- | --- | --- |"
    for model, data, settings, reference in cases:
        mine = [train(model, data, "serial", *settings, "--seed", seed) for seed in range(repeats)]
        words = " ".join(map(str, settings))
        reached = spread([each["test_accuracy"] for each in mine], 2, 100)
        yield f"| {model} | {data} | `{words}` | {reached} % | {reference} |"
    yield ""


CPU_PLANS = (
    "plain", "serial", "serial,precision=fp32", "serial,precision=fp32,kernels=torch", "serial,kernels=torch",
    "serial,allocator=default",
)  # fmt: skip
GPU_PLANS = ("plain", "plain,workers=4", "serial", "serial,precision=fp32", "serial,compile=on")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["cpu", "gpu", "target", "accuracy"])
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    parts = {
        "cpu": lambda: speeds("cpu", options.repeats, 256, 1, CPU_PLANS),
        "gpu": lambda: speeds("gpu", options.repeats, 64, 1, GPU_PLANS),
        "target": lambda: target(options.repeats),
        "accuracy": lambda: accuracy(options.repeats),
    }
    for line in parts[options.part]():
        print(line, flush=True)


if __name__ == "__main__":
    main()
