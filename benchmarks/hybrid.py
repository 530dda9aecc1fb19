"""Layers in parts: pipelines against their simulation, and two hosts over a slow link.

python benchmarks/hybrid.py pipeline      pipeline:2 with 8 micro-batches, every schedule: simulated and measured
python benchmarks/hybrid.py slow-link     data:2, tensor:2, owt:2 and pipeline:2 on two hosts with 1 Gb/s between them

The two hosts are network namespaces of this machine, a core each, joined by a virtual cable whose rate `tc` limits:
this needs root. Simulated times come from layers timed on one core while the other is as busy, and from links; no plan
is tried for them.
"""

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from manyhands.config import Config, with_values
from manyhands.files import home
from manyhands.machine.detect import detect
from manyhands.machine.link import Link, fit
from manyhands.measure.layer_profiler import profiles
from manyhands.measure.plan_benchmark import benchmark
from manyhands.plan.pipeline_schedule import SCHEDULES
from manyhands.plan.spec import parse
from manyhands.simulate.cost.links import Links
from manyhands.simulate.from_profile import predicted, predicted_cut
from manyhands.train.plan_constraints import resolve
from manyhands.tune.plan.local_predictor import LocalPredictor
from manyhands.tune.plan.pipeline_balance import settle_cut

PIPELINES: list[dict[str, Any]] = [
    {"model.name": "convnet", "data.name": "synthetic:1x28x28,10", "train.batch_size": 128},
    {"model.name": "alexnet", "data.name": "synthetic:3x64x64,200", "train.batch_size": 64, "model.head": "6x6"},
    {"model.name": "transformer", "data.name": "synthetic:text:64,20", "train.batch_size": 64},
]
SLOW: dict[str, Any] = {
    "model.name": "alexnet",
    "data.name": "synthetic:3x56x56,200",
    "train.batch_size": 64,
    "model.head": "6x6",
    "data.size": 2000,
}
SLOW_PLANS = ("data:2", "tensor:2", "owt:2", "pipeline:2")
FIXED = "device=cpu,precision=fp32,layout=channels_last,kernels=own,feed=device,workers=0"
HOSTS, CABLE, ADDRESSES = ("manyhands-a", "manyhands-b"), ("manyhands0", "manyhands1"), ("10.77.31.1", "10.77.31.2")
STEPS = 20  # of which the first ones, that make connections and optimizer state, do not count


def pipelines(rounds: int, models: list[str]) -> None:
    """Simulated from layers and links, then trained in turn, again and again: the machine may be faster one minute."""
    machine = detect()
    print(
        f"{machine}; n = {rounds}\n\n| model | batch | schedule | simulated ms | measured ms | error |\n{'| --- ' * 6}|"
    )
    for values in [each for each in PIPELINES if each["model.name"] in models]:
        config = with_values(Config(), {"data.size": 2000, **values})
        layout = "contiguous" if "text" in config.data.name else "channels_last"
        here, batch = LocalPredictor.of(config), config.train.batch_size
        chosen = []
        for schedule in SCHEDULES:
            words = f"pipeline:2,microbatches=8,schedule={schedule},{FIXED.replace('channels_last', layout)}"
            plan = resolve(parse(f"{words},compile=off,capture=off"), config, machine)
            chosen.append(settle_cut(plan, config, one_host=True))
        told: list[list[float]] = [[] for _ in chosen]
        taken: list[list[float]] = [[] for _ in chosen]
        for _ in range(rounds):
            shutil.rmtree(home() / "profiles", ignore_errors=True)  # layers are timed anew
            for plan, mine in zip(chosen, told, strict=True):
                mine.append(here.predict(plan, batch).result.step_ms)
            for turn, mine in zip(benchmark(config, chosen), taken, strict=True):
                if not turn.rounds:
                    raise SystemExit(f"error: {turn.plan.name}: {turn.error}")
                mine.append(turn.step_ms)
        for plan, simulated, measured in zip(chosen, told, taken, strict=True):
            error = statistics.median(simulated) / statistics.median(measured) - 1
            row = f"{batch} | {plan.schedule} | {_median(simulated)} | {_median(measured)} | {100 * error:+.1f} %"
            print(f"| {config.model.name} | {row} |", flush=True)


def _median(values: list[float]) -> str:
    spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.median(values):.1f}{spread}"


@contextlib.contextmanager
def two_hosts(rate: str) -> Iterator[None]:
    """Namespaces with a cable of some rate between them; gone afterwards."""
    made = [f"ip netns add {host}" for host in HOSTS]
    made.append(f"ip link add {CABLE[0]} netns {HOSTS[0]} type veth peer name {CABLE[1]} netns {HOSTS[1]}")
    for host, end, address in zip(HOSTS, CABLE, ADDRESSES, strict=True):
        made += [
            f"ip -n {host} addr add {address}/24 dev {end}",
            f"ip -n {host} link set {end} up",
            f"ip -n {host} link set lo up",
            f"ip netns exec {host} tc qdisc add dev {end} root tbf rate {rate} burst 64kb latency 100ms",
        ]
    try:
        for command in made:
            subprocess.run(command.split(), check=True)
        yield
    finally:
        for host in HOSTS:
            subprocess.run(["ip", "netns", "del", host], check=False)


def on_both(module: str, *arguments: str) -> str:
    """Run a module as a rank on each host; what the first one prints."""
    processes = []
    for rank, (host, end) in enumerate(zip(HOSTS, CABLE, strict=True)):
        told = {"RANK": rank, "WORLD_SIZE": 2, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1, "MASTER_PORT": 29555}
        there = {**{name: str(value) for name, value in told.items()}, "MASTER_ADDR": ADDRESSES[0]}
        command = ["ip", "netns", "exec", host, "taskset", "-c", str(rank), sys.executable, "-m", module, *arguments]
        environment = {**os.environ, **there, "GLOO_SOCKET_IFNAME": end}
        processes.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
    (out, errors), *_ = [process.communicate(timeout=600) for process in processes]
    if any(process.returncode for process in processes):
        raise SystemExit(errors.decode()[-2000:])
    return out.decode()


def links() -> dict[str, Link]:
    """Between the hosts, measured."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "points.json"
        cores = ",".join(map(str, sorted(os.sched_getaffinity(0))))
        on_both("manyhands.comm.links_rank", "gloo", str(out), cores, str(2**24), "2.0", "best")
        told = json.loads(out.read_text())
    return {name: Link("gloo", name, 2, *fit(points), tuple(map(tuple, points))) for name, points in told.items()}


def trained(words: str, folder: str) -> float:
    """Samples a second."""
    sets = [f"{name}={value}" for name, value in SLOW.items() if name not in ("model.name", "data.name")]
    sets += [f"train.max_steps={STEPS}", "data.test_size=64"]
    arguments = [part for each in sets for part in ("--set", each)]
    told = on_both(
        "manyhands", "train", SLOW["model.name"], "--data", SLOW["data.name"], "--plan", words, "--json",
        "--out", f"{folder}/{len(os.listdir(folder))}", *arguments,
    )  # fmt: skip
    return float(json.loads(told)["samples_per_s"])


def slow_link(rate: str, repeats: int) -> None:
    """All plans in turn, again and again."""
    machine, config = detect(), with_values(Config(), SLOW)
    here, batch = LocalPredictor.of(config), config.train.batch_size
    words = [f"{each},backend=gloo,{FIXED}" for each in SLOW_PLANS]
    measured: dict[str, list[float]] = {each: [] for each in words}
    with two_hosts(rate), tempfile.TemporaryDirectory() as folder:
        between = links()
        for _ in range(repeats):
            for each in words:
                measured[each].append(trained(each, folder))
                print(f"{each}: {measured[each][-1]:.1f} samples/s", file=sys.stderr, flush=True)
    print(f"{machine}; two hosts of one core, {rate} between them, batch {batch}\n")
    for name, link in between.items():
        print(f"- {name}: {link.latency_us:.0f} us, {link.gb_per_s:.3f} GB/s")
    print(f"\n| plan | samples/s | of data:2 | step ms | simulated ms |\n{'| --- ' * 5}|")
    base = statistics.mean(measured[words[0]])
    for each in words:
        mean, spread = statistics.mean(measured[each]), statistics.stdev(measured[each]) if repeats > 1 else 0.0
        told = f"{simulated(each, here, config, between):.0f}"
        row = f"{mean:.1f} ± {spread:.1f}, n = {repeats} | {mean / base:.2f} | {1e3 * batch / mean:.0f} | {told}"
        print(f"| {parse(each).name} | {row} |")


def simulated(words: str, here: LocalPredictor, config: Config, between: dict[str, Link]) -> float:
    """Milliseconds of a step, from layers timed on these cores and the links between the hosts."""
    plan, machine, batch = parse(f"{words},compile=off,capture=off"), detect(), config.train.batch_size
    plan = resolve(plan, config, machine)
    (profile,) = profiles(config, [replace(plan, microbatches=None)], [batch // 8, batch // 2, batch], machine)
    if plan.is_model_parallel:
        plan = settle_cut(plan, config, one_host=False)
        made = predicted_cut(here.graph, plan, profile, (between["all_reduce"], between["send"]), config, machine)
    else:
        adds = Links(between["all_reduce"], between["all_reduce"])
        made = predicted(here.graph, plan, profile, adds, config, machine)
    return made.result.step_ms


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["pipeline", "slow-link"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--models", nargs="+", default=[each["model.name"] for each in PIPELINES])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rate", default="1gbit")
    given = parser.parse_args()
    if given.part == "pipeline":
        pipelines(given.rounds, given.models)
    else:
        slow_link(given.rate, given.repeats)
