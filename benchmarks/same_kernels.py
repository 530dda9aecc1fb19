"""What it costs on a GPU to choose cuDNN's kernels by rule and not by the clock, and whether runs are equal then.

    python benchmarks/same_kernels.py [--repeats 3] [--steps 60] [--batch-size 256]

Both choices take turns in one process, each with a model of its own, as `serial` trains it there (captured). By rule is
what the product does; by the clock is cuDNN's own benchmark, as it was before. A digest of all weights after the steps
says whether repeats were the same to the bit.
"""

import argparse
import hashlib
import statistics
import time
from collections.abc import Callable

import torch

from manyhands.config import Config, with_values
from manyhands.data.load import load
from manyhands.data.schema import DataOptions
from manyhands.plan.spec import parse
from manyhands.train.job import Job, assemble, choose_alike

MODELS = {"convnet": "1x28x28,10", "alexnet": "3x224x224,100", "resnet18": "3x224x224,100", "resnet50": "3x224x224,100"}
PLAN = "serial,device=cuda,kernels=torch,compile=off,capture=on,feed=device,workers=0,layout=channels_last"
WARM = 8  # steps: eager ones, the capture, and some replays


def by_the_clock() -> None:
    torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic = True, False


CHOICES: dict[str, Callable[[], None]] = {"rule": choose_alike, "clock": by_the_clock}


def job_of(model: str, precision: str, batch: int) -> Job:
    values = {"model.name": model, "train.batch_size": batch, "optim.name": "momentum", "optim.lr": 0.01}
    dataset = load(f"synthetic:{MODELS[model]}", DataOptions(size=4 * batch, validation=0))
    return assemble(with_values(Config(), values), parse(f"{PLAN},precision={precision}"), dataset)


def trained(model: str, precision: str, batch: int, steps: int, choose: Callable[[], None]) -> tuple[float, str]:
    """Steps a second after the first ones, and a digest of the weights."""
    torch.manual_seed(0)
    job = job_of(model, precision, batch)
    choose()
    feed, done, started = job.context.feed, 0, 0.0
    while done < WARM + steps:
        for number, each in enumerate(feed.epoch(done)):
            if done == WARM:
                torch.cuda.synchronize()
                started = time.perf_counter()
            job.step(each, feed.share(number))
            done += 1
    torch.cuda.synchronize()
    rate = (done - WARM) / (time.perf_counter() - started)
    digest = hashlib.sha256()
    for tensor in job.context.strategy.weights().values():
        digest.update(tensor.detach().cpu().contiguous().view(-1).numpy().tobytes())
    return rate, digest.hexdigest()[:8]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--models", default=",".join(MODELS))
    given = parser.parse_args()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, batch {given.batch_size}, n = {given.repeats}")
    print("| model | precision | by rule, steps/s | by the clock | ratio | equal by rule | equal by the clock |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for model in given.models.split(","):
        for precision in ("fp32", "bf16"):
            rates: dict[str, list[float]] = {name: [] for name in CHOICES}
            digests: dict[str, list[str]] = {name: [] for name in CHOICES}
            for _ in range(given.repeats):
                for name, choose in CHOICES.items():
                    rate, digest = trained(model, precision, given.batch_size, given.steps, choose)
                    rates[name].append(rate)
                    digests[name].append(digest)
            ratios = [one / other for one, other in zip(rates["rule"], rates["clock"], strict=True)]
            row = [f"{statistics.mean(each):.1f} ± {statistics.stdev(each):.1f}" for each in rates.values()]
            same = [f"{len(each) - len(set(each)) + 1} of {len(each)}" for each in digests.values()]
            ratio = f"{statistics.mean(ratios):.2f} ± {statistics.stdev(ratios):.2f}"
            print(f"| {model} | {precision} | {' | '.join(row)} | {ratio} | {' | '.join(same)} |", flush=True)


if __name__ == "__main__":
    main()
