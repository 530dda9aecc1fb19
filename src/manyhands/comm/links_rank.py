"""Links, rank side: times collectives and messages between the ranks of one backend."""

import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from manyhands.comm.links import Act, sizes
from manyhands.comm.ranks.rank_info import place
from manyhands.comm.rendezvous import join
from manyhands.errors import RankError
from manyhands.files import write_json
from manyhands.machine.process_setup import settle

SWEEPS = 3  # over all operations and sizes: what disturbs for some seconds spoils one
ROUND, ROUNDS = 5e-3, 3  # seconds of one round, so short that most are not disturbed; rounds at least
WORK = 256  # rows of the matrices that are multiplied before a message: about a millisecond on a core
TIMEOUT = 60.0  # seconds that a rank waits for another


def share(cores: Sequence[int], rank: int, world: int) -> Sequence[int]:
    """A rank's cores: neighbours, as many for each; all of them where there are more ranks than cores."""
    each = len(cores) // world
    return cores[rank * each : (rank + 1) * each] or cores


def main(backend: str, out: Path, cores: Sequence[int], largest: int, seconds: float, statistic: str) -> None:
    """Measure as one rank; the first writes the points of each operation."""
    here = place()
    if here is None:
        raise RankError("a rank did not learn its place: mpirun and mpi4py may belong to different MPIs")
    mine = share(cores, here.rank, here.world)
    settle(threads=len(mine), cores=mine, allocator="keep")  # as a training does
    import torch  # after the process has settled
    import torch.distributed as dist

    device = "cuda" if backend == "nccl" else "cpu"
    if device == "cuda":
        torch.cuda.set_device(here.local_rank)
    join(here, backend, TIMEOUT)
    usual = statistic == "usual"
    rounds: dict[str, dict[int, list[float]]] = {}
    for _ in range(SWEEPS):
        for operation, make in _operations(backend, here.world, usual).items():
            found, ways = rounds.setdefault(operation, {}), 2 if operation == "send" else 1
            for size in sizes(largest, 2 if usual else 1):
                taken = (_time_usual if usual else _time)(make(size, device), device, seconds / SWEEPS)
                found.setdefault(size, []).extend(each / ways for each in taken)
    if here.rank == 0:
        one = statistics.fmean if usual else min
        points = {name: [(size, one(taken)) for size, taken in found.items()] for name, found in rounds.items()}
        write_json(out, points)
    dist.destroy_process_group()


def _operations(backend: str, world: int, usual: bool) -> dict[str, Callable[[int, str], Act]]:
    """What is measured: for each operation, how to make the call that is repeated, given bytes and device."""
    made: dict[str, Callable[[int, str], Act]] = {"all_reduce": _all_reduce}
    if backend == "shm":
        made["all_reduce_in_place"] = _all_reduce_in_place
    if world == 2 and not usual:  # a message is between two ranks, however many there are
        made["send"] = _send
    return made


def _all_reduce(size: int, device: str) -> Act:
    import torch
    import torch.distributed as dist

    tensor = torch.zeros(size // 4, device=device)  # zeros, which no number of sums makes overflow
    return lambda: dist.all_reduce(tensor)


def _all_reduce_in_place(size: int, device: str) -> Act:
    import torch
    import torch.distributed as dist

    group: Any = dist.group.WORLD
    rows = group.shared(size // 4, torch.float32)
    return lambda: group.all_reduce_shared(rows)


def _send(size: int, device: str) -> Act:
    """A message there and back: when a rank has sent one, the other may still be busy with it."""
    import torch
    import torch.distributed as dist

    tensor, rank = torch.zeros(size // 4, device=device), dist.get_rank()

    def act() -> None:
        for sender in (0, 1):
            if rank == sender:
                dist.send(tensor, 1 - rank)
            else:
                dist.recv(tensor, 1 - rank)

    return act


def _time(act: Act, device: str, seconds: float) -> list[float]:
    """The mean of each round; in a round all ranks start together and make the call again and again."""
    import torch
    import torch.distributed as dist

    def timed(count: int) -> float:
        dist.barrier()
        start = time.perf_counter()
        for _ in range(count):
            act()
        if device == "cuda":
            torch.cuda.synchronize()
        return (time.perf_counter() - start) / count

    timed(1)
    once = min(timed(1), timed(1))
    calls = math.ceil(ROUND / once)
    calls, rounds = _agreed([calls, max(ROUNDS, int(seconds / calls / once))], device)
    return [timed(calls) for _ in range(rounds)]


def _time_usual(act: Act, device: str, seconds: float) -> list[float]:
    """Each call after some work, from when the last rank is there: how long others wait for that one is no message."""
    import torch
    import torch.distributed as dist

    matrix = torch.ones(WORK, WORK, device=device)

    def timed() -> float:
        matrix.mm(matrix)
        if device == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        act()
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - start

    dist.barrier()
    timed()
    (count,) = _agreed([max(ROUNDS, int(seconds / (timed() + ROUND / 5)))], device)
    mine = torch.tensor([timed() for _ in range(count)], dtype=torch.float64, device=device)
    everyone = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, mine)
    shortest: list[float] = torch.stack(everyone).min(0).values.tolist()
    return shortest


def _agreed(counts: list[int], device: str) -> list[int]:
    """The first rank's clock decides for all: they must call equally often."""
    import torch
    import torch.distributed as dist

    told = torch.tensor(counts, device=device)
    dist.broadcast(told, 0)
    agreed: list[int] = told.tolist()
    return agreed


if __name__ == "__main__":
    main(
        sys.argv[1],
        Path(sys.argv[2]),
        [int(core) for core in sys.argv[3].split(",")],
        int(sys.argv[4]),
        float(sys.argv[5]),
        sys.argv[6],
    )
