"""Makes benchmarks/results/data_parallel.md: the cores of one machine, split over ranks, beside PyTorch's own ways.

usage: data_parallel.py speed | small | cores | alexnet | compression | accuracy  [--repeats R] [--steps S]
       (MANYHANDS_DATA must hold mnist)

Each part prints a section of Markdown: speed all ways of using this machine's cores at batch 256, small the exchange
at batch 64, cores batch 1024 over many cores, alexnet a model whose gradients take longer than its arithmetic,
compression what is sent, accuracy that splitting costs none. Every training is a process of its own; plans take
turns, and ratios are those of the same turn. benchmarks/bandwidth.py measures the exchange alone.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from bench import HERE, Result, heading, mnist, output_of, ratio, spread, train

from manyhands.machine.detect import detect

RANKS = detect().physical_cores
Run = Callable[[int], Result]
# What our allocator=keep does, as glibc's variables say it.
KEEP = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**31 - 1), "MALLOC_TOP_PAD_": str(64 * 2**20)}


def plan(words: str, model: str, data: str, batch: int, *arguments: object) -> Run:
    return lambda seed: train(model, data, words, "--batch-size", batch, "--seed", seed, *arguments)


def script(batch: int, size: int, *before: object) -> Run:
    """The usual script, started by another launcher; trained on `size` samples, as a plan would after validation."""
    command = (HERE / "usual_script.py", mnist(), "--batch-size", batch, "--size", size)
    return lambda seed: output_of((*before, *command, "--seed", seed))


def by_hand(batch: int, size: int, environment: dict[str, str], seed: int) -> Result:
    """The usual DDP script as an expert would start it: one thread a rank, each on a core of its own."""
    script = [sys.executable, HERE / "usual_script.py", mnist(), "--batch-size", batch, "--size", size, "--seed", seed]
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(RANKS)}
    settings = {**os.environ, **environment, **meeting, "OMP_NUM_THREADS": "1"}
    children = [
        subprocess.Popen(
            ["taskset", "-c", str(rank), *map(str, script)], stdout=subprocess.PIPE, text=True,
            env={**settings, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(RANKS)
    ]  # fmt: skip
    said = [child.communicate()[0] for child in children]
    result: Result = json.loads(said[0].strip().splitlines()[-1])
    return result


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def torchrun(ranks: int) -> tuple[object, ...]:
    return (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", ranks)


def take_turns(ways: dict[str, Run], repeats: int) -> dict[str, list[Result]]:
    results: dict[str, list[Result]] = {name: [] for name in ways}
    for repeat in range(repeats):
        for name, run in ways.items():
            results[name].append(run(repeat))
            last = results[name][-1]
            told = f"{last['samples_per_s']:,.0f} samples/s, {100 * last['test_accuracy']:.2f} %"
            print(f"repeat {repeat + 1} of {repeats}: {name}: {told}", file=sys.stderr, flush=True)
    return results


def table(results: dict[str, list[Result]], bases: Sequence[str], *, accuracy: bool = False) -> Iterator[str]:
    extra = ["test accuracy"] if accuracy else []
    columns = ["way", "samples/s", *(f"to {base}" for base in bases), *extra]
    yield f"| {' | '.join(columns)} |\n|{' --- |' * len(columns)}"
    for name, mine in results.items():
        cells = [name, spread([each["samples_per_s"] for each in mine])]
        cells += [ratio(mine, results[base]) for base in bases]
        if accuracy:
            cells.append(spread([each["test_accuracy"] for each in mine], 2, 100) + " %")
        yield f"| {' | '.join(cells)} |"
    yield ""
    for name, mine in results.items():
        if mine[0].get("plan") not in (None, name):
            yield f"- `{name}` ran as `{mine[0]['plan']}`"
    yield ""


def speed(repeats: int, steps: int) -> Iterator[str]:
    """Every way of using all cores of this machine, the ways of others included."""
    batch, size = 256, 256 * steps
    limits = ("--epochs", 1, "--set", f"train.max_steps={steps}")
    words = (
        "plain", "serial", f"ddp:{RANKS}", f"data:{RANKS}", f"data:{RANKS},precision=fp32",
        f"data:{RANKS},backend=gloo",
    )  # fmt: skip
    ways = {name: plan(name, "convnet", "mnist", batch, *limits) for name in words}
    ways["usual DDP script, torchrun"] = script(batch, size, *torchrun(RANKS))
    ways["usual DDP script, ranks pinned by hand"] = partial(by_hand, batch, size, {})
    ways["the same, malloc told to keep memory"] = partial(by_hand, batch, size, KEEP)
    xeon = (sys.executable, "-m", "torch.backends.xeon.run_cpu", "--ninstances", 1, "--ncores-per-instance", RANKS)
    ways["usual script, torch.backends.xeon.run_cpu"] = script(batch, size, *xeon)
    results = take_turns(ways, repeats)
    yield from heading(f"MNIST convnet, batch {batch}, {steps} steps, all {RANKS} cores", repeats)
    yield from table(results, ["plain", "serial"])


def small(repeats: int, steps: int) -> Iterator[str]:
    """The exchange alone makes the difference: everything else is the same."""
    limits = ("--epochs", 1, "--set", f"train.max_steps={steps}")
    for precision in ("bf16", "fp32"):
        same = f"precision={precision},layout=channels_last,allocator=keep,compile=off"
        ways = {
            name: plan(f"{name},{same}", "convnet", "mnist", 64, *limits)
            for name in (f"data:{RANKS},backend=gloo", f"data:{RANKS},backend=shm", f"ddp:{RANKS}", "serial")
        }
        results = take_turns(ways, repeats)
        yield from heading(f"MNIST convnet, batch 64, {precision}, kept allocator, {steps} steps", repeats)
        yield from table(results, [f"data:{RANKS},backend=gloo", f"ddp:{RANKS}"])
        yield "`data:N,backend=gloo` is DistributedDataParallel with our feed, kernels and pinning; `ddp:N` is the"
        yield "usual script with allocator, precision and layout set alike.\n"


def cores(repeats: int, steps: int) -> Iterator[str]:
    batch = 1024
    limits = ("--epochs", 1, "--set", f"train.max_steps={steps}")
    few = ("--epochs", 1, "--set", f"train.max_steps={max(steps // 4, 12)}")
    base = "plain on one core"
    ways = {base: plan("plain,device=cpu,threads=1", "convnet", "mnist", batch, *few, "--set", "cpu.affinity=0")}
    ways["plain"] = plan("plain,device=cpu", "convnet", "mnist", batch, *few)
    for words in (
        f"ddp:{RANKS}", f"data:{RANKS},precision=fp32", f"data:{RANKS},precision=bf16",
        f"data:{RANKS // 2},precision=bf16",
    ):  # fmt: skip
        ways[words] = plan(f"{words},device=cpu", "convnet", "mnist", batch, *limits)
    results = take_turns(ways, repeats)
    yield from heading(f"MNIST convnet, batch {batch}, {RANKS} cores", repeats)
    yield from table(results, [base, "plain"])


def alexnet(repeats: int, steps: int) -> Iterator[str]:
    limits = ("--epochs", 1, "--set", f"train.max_steps={steps}", "--set", "model.head=6x6", "--set", "optim.name=sgd")
    data = "synthetic:3x56x56,200"
    for precision in ("fp32", "bf16"):
        same = f"precision={precision},layout=channels_last,allocator=keep,compile=off"
        words = (f"data:{RANKS},backend=gloo", f"data:{RANKS},backend=shm", f"ddp:{RANKS}", "serial")
        ways = {name: plan(f"{name},{same}", "alexnet", data, 64, *limits) for name in words}
        results = take_turns(ways, repeats)
        yield from heading(f"AlexNet, 6x6 head, {data}, batch 64, {precision}, SGD, {steps} steps", repeats)
        yield from table(results, [f"data:{RANKS},backend=gloo"])
        best = max(results, key=lambda name: statistics.fmean(each["samples_per_s"] for each in results[name]))
        if best == "serial":
            yield f"One process is faster than {RANKS} here: 57 million gradients cost more than they save.\n"


def compression(repeats: int, steps: int) -> Iterator[str]:
    limits = ("--epochs", 1, "--set", f"train.max_steps={steps}")
    kinds = ("none", "bf16", "fp16", "topk", "powersgd")
    ways = {
        f"data:{RANKS},backend=gloo,compress={kind}": plan(
            f"data:{RANKS},backend=gloo,compress={kind},precision=fp32", "convnet", "mnist", 256, *limits
        )
        for kind in kinds
    }
    results = take_turns(ways, repeats)
    yield from heading(f"What compression sends: MNIST convnet, batch 256, {steps} steps, over loopback", repeats)
    yield "| plan | bytes a step and rank | times fewer | samples/s | test accuracy |\n| --- | --- | --- | --- | --- |"
    for name, mine in results.items():
        sent, fewer = mine[0]["sent_bytes_per_step"], mine[0]["compression_ratio"]
        speed = spread([each["samples_per_s"] for each in mine])
        accuracy = spread([each["test_accuracy"] for each in mine], 2, 100)
        yield f"| {name} | {sent:,} | {fewer:.1f} | {speed} | {accuracy} % |"
    yield ""


def accuracy(repeats: int, steps: int) -> Iterator[str]:
    ways = {name: plan(name, "convnet", "mnist", 256, "--epochs", 3) for name in ("serial", f"data:{RANKS}")}
    results = take_turns(ways, repeats)
    yield from heading("Accuracy: MNIST convnet, batch 256, 3 epochs, same seeds", repeats)
    yield from table(results, ["serial"], accuracy=True)
    pairs = zip(results[f"data:{RANKS}"], results["serial"], strict=True)
    apart = [100 * (one["test_accuracy"] - other["test_accuracy"]) for one, other in pairs]
    error = statistics.stdev(apart) / len(apart) ** 0.5
    mean = statistics.fmean(apart)
    yield f"Difference, paired by seed: {mean:+.3f} points, standard error {error:.3f}, n = {repeats}.\n"


PARTS: dict[str, tuple[Callable[[int, int], Iterator[str]], int]] = {  # and how many steps
    "speed": (speed, 80),
    "small": (small, 300),
    "cores": (cores, 50),
    "alexnet": (alexnet, 30),
    "compression": (compression, 120),
    "accuracy": (accuracy, 0),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int)
    options = parser.parse_args()
    part, steps = PARTS[options.part]
    for line in part(options.repeats, options.steps or steps):
        print(line, flush=True)


if __name__ == "__main__":
    main()
