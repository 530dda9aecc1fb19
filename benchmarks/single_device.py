"""Makes benchmarks/results/single_device.md: plain PyTorch and one device at its best, in one interleaved run.

usage: single_device.py cpu | gpu | target | accuracy  [--repeats R]      (MANYHANDS_DATA must hold mnist)

Each part prints a section of Markdown: cpu and gpu the speeds beside the usual script, target the time to 99 %
of MNIST's test images on a GPU, accuracy what the models reach. Every training is a process of its own.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from manyhands.machine.detect import detect
from manyhands.runs.run import versions

HERE = Path(__file__).parent
Result = dict[str, Any]


def mnist() -> Path:
    for folder in os.environ.get("MANYHANDS_DATA", "").split(":"):
        if (Path(folder) / "mnist").is_dir():
            return Path(folder) / "mnist"
    sys.exit("put MNIST's files into a folder mnist and name its parent in MANYHANDS_DATA")


def output_of(command: Sequence[object]) -> Result:
    done = subprocess.run([str(each) for each in command], stdout=subprocess.PIPE, text=True, check=True)
    result: Result = json.loads(done.stdout)
    return result


def train(model: str, data: str, plan: str, *arguments: object) -> Result:
    with tempfile.TemporaryDirectory() as folder:
        out = ("--out", Path(folder) / "run", "--json", "--quiet")
        command = (sys.executable, "-m", "manyhands", "train", model, "--data", data, "--plan", plan)
        return output_of((*command, *arguments, *out))


def usual(batch: int, seed: int, workers: int, epochs: int) -> Result:
    script = (sys.executable, HERE / "usual_script.py", mnist(), "--batch-size", batch, "--seed", seed)
    return output_of((*script, "--workers", workers, "--epochs", epochs))


def spread(values: Sequence[float], digits: int = 0, scale: float = 1) -> str:
    values = [scale * value for value in values]
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.fmean(values):,.{digits}f} ± {deviation:,.{digits}f}"


def ratio(results: Sequence[Result], base: Sequence[Result]) -> str:
    """Of the same repeat: what disturbed one of the pair is likely to have disturbed the other."""
    pairs = zip(results, base, strict=True)
    return spread([each["samples_per_s"] / other["samples_per_s"] for each, other in pairs], 2)


def heading(title: str, part: str, repeats: int) -> Iterator[str]:
    found = versions()
    yield f"## {title}\n"
    yield f"{detect()}; torch {found['torch']}, Python {found['python']}; n = {repeats}, interleaved."
    yield f"`python benchmarks/single_device.py {part} --repeats {repeats}`\n"


def speeds(part: str, repeats: int, batch: int, epochs: int, plans: Sequence[str]) -> Iterator[str]:
    """Plans and the usual script, A B C A B C."""
    scripts = (
        [("the usual script", 0), ("the usual script, workers=4", 4)] if part == "gpu" else [("the usual script", 0)]
    )
    results: dict[str, list[Result]] = {name: [] for name in [*(name for name, _ in scripts), *plans]}
    for repeat in range(repeats):
        for name, workers in scripts:
            results[name].append(usual(batch, repeat, workers, epochs))
        for plan in plans:
            results[plan].append(
                train("convnet", "mnist", plan, "--batch-size", batch, "--epochs", epochs, "--seed", repeat)
            )
        print(f"repeat {repeat + 1} of {repeats} done", file=sys.stderr, flush=True)
    yield from heading(f"MNIST convnet, batch {batch}, {epochs} epoch{'s' * (epochs > 1)}, {part}", part, repeats)
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
    yield f"\nTransforms of the usual script: {results['the usual script'][0]['transforms']}."
    yield f"`serial` was bound to `{results['serial'][0]['plan']}`.\n"


def target(repeats: int) -> Iterator[str]:
    """MNIST to 99 %: the settings were chosen on the validation part, before."""
    settings = ("--batch-size", 512, "--epochs", 3, "--set", "optim.schedule=one-cycle", "--set", "optim.lr=0.004")
    yield from heading(
        "MNIST convnet to 99 % of the test images, batch 512, 3 epochs, Adam, one-cycle", "target", repeats
    )
    yield "| plan | test accuracy | training s | samples/s | set-up s | compile and capture s | total s |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for plan in ("serial,compile=on", "serial"):
        mine = [train("convnet", "mnist", plan, *settings, "--seed", seed) for seed in range(repeats)]
        cells = [plan, spread([each["test_accuracy"] for each in mine], 3, 100) + " %"]
        cells += [
            spread([each["seconds"]["train"] for each in mine], 3),
            spread([each["samples_per_s"] for each in mine]),
        ]
        cells += [spread([each["seconds"][phase] for each in mine], 2) for phase in ("setup", "compile", "total")]
        yield f"| {' | '.join(cells)} |"
    yield "\nTraining s leaves out the first four steps, which compile and capture and are counted there.\n"


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
    yield from heading("What the models reach on the test part", "accuracy", repeats)
    yield "| model | data | settings | test accuracy | published or simple reference | training s |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for model, data, settings, reference in cases:
        mine = [train(model, data, "serial", *settings, "--seed", seed) for seed in range(repeats)]
        words = " ".join(map(str, settings))
        reached = spread([each["test_accuracy"] for each in mine], 2, 100)
        seconds = spread([each["seconds"]["train"] for each in mine], 1)
        yield f"| {model} | {data} | `{words}` | {reached} % | {reference} | {seconds} |"
    yield ""


CPU_PLANS = (
    "plain", "serial", "serial,precision=fp32", "serial,precision=fp32,kernels=torch", "serial,kernels=torch",
    "serial,allocator=default",
)  # fmt: skip
GPU_PLANS = ("plain", "plain,workers=4", "serial", "serial,precision=fp32", "serial,compile=on", "serial,capture=off")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["cpu", "gpu", "target", "accuracy"])
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    parts = {
        "cpu": lambda: speeds("cpu", options.repeats, 256, 1, CPU_PLANS),
        "gpu": lambda: speeds("gpu", options.repeats, 64, 2, GPU_PLANS),
        "target": lambda: target(options.repeats),
        "accuracy": lambda: accuracy(options.repeats),
    }
    for line in parts[options.part]():
        print(line, flush=True)


if __name__ == "__main__":
    main()
