"""How fast ranks of one machine add up their gradients: shared memory beside gloo, in the same processes, in turn.

usage: bandwidth.py [--ranks N] [--repeats R] [--megabytes 1 32 240] [--unpinned]

Bandwidth is the payload of one rank over the time of the slowest rank, fp32. Every repeat times each way for some
calls, one way after the other; ratios are those of the same repeat.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from bench import HERE, heading, spread

from manyhands.comm.launch.elastic import ranks
from manyhands.comm.ranks.rank_info import place
from manyhands.comm.rendezvous import join
from manyhands.machine.affinity import deal
from manyhands.machine.detect import detect
from manyhands.machine.process_setup import settle

GLOO = "gloo all-reduce"
COPIED = "shm all-reduce, copied in and out"
IN_PLACE = "shm all-reduce in place, one result that all read"
EVERY = "shm all-reduce in place, into every rank's row"
SCATTER = "shm reduce-scatter in place"
SECONDS = 0.4  # of each way in each repeat
Found = dict[str, dict[str, list[float]]]  # GB/s by megabytes and way


def measure(out: Path, repeats: int, pinned: bool, sizes: list[float]) -> None:
    """As one of the ranks; pinned to its cores, as a training's ranks are."""
    here = place()
    assert here is not None
    cores = deal(detect(), here.world)[here.rank]
    settle(threads=len(cores), cores=cores if pinned else None, allocator="keep")
    import torch
    import torch.distributed as dist

    join(here, "gloo")
    from manyhands.comm.backends import shm

    shm.register()
    group: Any = dist.new_group(backend="shm")
    found: Found = {}
    for size in sizes:
        count = int(size * 2**20) // 4
        rows, tensor = group.shared(count, torch.float32), torch.zeros(count)
        rows[here.rank].zero_()
        ways: dict[str, Callable[[], object]] = {
            GLOO: partial(dist.all_reduce, tensor),
            COPIED: partial(dist.all_reduce, tensor, group=group),
            IN_PLACE: partial(group.all_reduce_shared, rows),
            EVERY: partial(group.all_reduce_every, rows),
            SCATTER: partial(group.reduce_scatter_shared, rows),
        }
        rates = found[f"{size:g}"] = {way: [] for way in ways}
        calls = {way: _calls(act) for way, act in ways.items()}
        for _ in range(repeats):
            for way, act in ways.items():
                rates[way].append(4 * count / _slowest(act, calls[way]) / 1e9)
    if here.rank == 0:
        out.write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


def _calls(act: Callable[[], object]) -> int:
    """How many calls fill the time; the same on all ranks."""
    act()
    return max(3, min(2000, int(SECONDS / _slowest(act, 2))))


def _slowest(act: Callable[[], object], calls: int) -> float:
    """Seconds of a call, on the rank that took longest."""
    import torch
    import torch.distributed as dist

    dist.barrier()
    start = time.perf_counter()
    for _ in range(calls):
        act()
    taken = torch.tensor((time.perf_counter() - start) / calls)
    dist.all_reduce(taken, dist.ReduceOp.MAX)
    return taken.item()


def report(found: Found, world: int, repeats: int) -> Iterator[str]:
    yield from heading(f"All-reduce of fp32 among {world} ranks of one machine, GB/s of payload", repeats)
    yield "| MB | way | GB/s | to gloo |\n| --- | --- | --- | --- |"
    for size, rates in found.items():
        for way, mine in rates.items():
            ratios = [one / other for one, other in zip(mine, rates[GLOO], strict=True)]
            middle = statistics.median(ratios)
            yield f"| {size} | {way} | {spread(mine, 2)} | {spread(ratios, 1)} (median {middle:.1f}) |"
    yield ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=detect().physical_cores)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--megabytes", type=float, nargs="+", default=[1, 32, 240])
    parser.add_argument("--unpinned", action="store_true", help="let the kernel place the ranks")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "found.json"
        arguments = [str(out), str(options.repeats), str(int(not options.unpinned)), *map(str, options.megabytes)]
        ranks("bandwidth", arguments, options.ranks, environment={"PYTHONPATH": f"{HERE}:{HERE.parent / 'src'}"})
        for line in report(json.loads(out.read_text()), options.ranks, options.repeats):
            print(line, flush=True)


if __name__ == "__main__":
    if place() is None:
        main()
    else:
        measure(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "1", [float(each) for each in sys.argv[4:]])
