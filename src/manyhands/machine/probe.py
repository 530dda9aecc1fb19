"""Probe: how fast a device multiplies, convolves and copies (`python -m manyhands.machine.probe`, alone)."""

import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from manyhands.files import write_json
from manyhands.machine.process_setup import settle
from manyhands.machine.throughput import Rate

SWEEPS = 3  # over all kinds of work: what disturbs for a second spoils one
SECONDS = 0.3  # of each kind, all sweeps together
CHANNELS, PIXELS, KERNEL = 64, 56, 3  # of the convolution: the first stage of a ResNet


@dataclass(frozen=True)
class Sizes:
    """Work that fills the device: caches must not hold the copy, and starting a kernel must not count."""

    matmul: int  # rows and columns
    images: int
    copied: int  # bytes


SIZES = {"cpu": Sizes(1024, 16, 2**27), "cuda": Sizes(8192, 256, 2**30)}


@dataclass(frozen=True)
class Work:
    """A call to be timed, and how many operations or bytes it is."""

    operation: str
    precision: str
    call: Callable[[], object]
    amount: int


def measure(device: str, sizes: Sizes, seconds: float = SECONDS) -> list[Rate]:
    """The rates of this process as it has settled; on a GPU, of the first one."""
    import torch

    threads = torch.get_num_threads() if device == "cpu" else 0
    wait = torch.cuda.synchronize if device == "cuda" else _nothing
    with torch.inference_mode():
        works = list(_works(device, sizes))
        sweeps = [[best(work.call, wait, seconds / SWEEPS) for work in works] for _ in range(SWEEPS)]
    return [
        Rate(device, work.operation, work.precision, threads, work.amount / min(times) / 1e9)
        for work, *times in zip(works, *sweeps, strict=True)
    ]


def _works(device: str, sizes: Sizes) -> Iterator[Work]:
    import torch

    for precision, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        yield _matmul(device, precision, dtype, sizes.matmul)
        yield _convolution(device, precision, dtype, sizes.images)
    yield _copy(device, sizes.copied)


def _matmul(device: str, precision: str, dtype: Any, side: int) -> Work:
    """Every element of the result takes `side` products and as many sums."""
    import torch

    left, right, result = (torch.ones(side, side, dtype=dtype, device=device) for _ in range(3))
    return Work("matmul", precision, lambda: torch.matmul(left, right, out=result), 2 * side**3)


def _convolution(device: str, precision: str, dtype: Any, images: int) -> Work:
    """Every element of the result takes channels × kernel² products and as many sums (the border's zeros count)."""
    import torch

    # Channels last, as the engine has it where that measured faster.
    layout = {"dtype": dtype, "device": device, "memory_format": torch.channels_last}
    batch = torch.ones(images, CHANNELS, PIXELS, PIXELS).to(**layout)
    weights = torch.ones(CHANNELS, CHANNELS, KERNEL, KERNEL).to(**layout)
    amount = 2 * (images * CHANNELS * PIXELS**2) * (CHANNELS * KERNEL**2)
    convolve = torch.nn.functional.conv2d
    return Work("convolution", precision, lambda: convolve(batch, weights, padding=KERNEL // 2), amount)


def _copy(device: str, size: int) -> Work:
    """A byte counts once, although it is read and written."""
    import torch

    source, target = (torch.ones(size // 4, device=device) for _ in range(2))
    return Work("copy", "fp32", lambda: target.copy_(source), size)


def best(work: Callable[[], object], wait: Callable[[], object], seconds: float) -> float:
    """The shortest time of as many repeats as fit; one before them is for caches, threads and chosen kernels."""
    work()
    wait()
    shortest, end = math.inf, time.perf_counter() + seconds
    while shortest == math.inf or time.perf_counter() < end:
        start = time.perf_counter()
        work()
        wait()
        shortest = min(shortest, time.perf_counter() - start)
    return shortest


def _nothing() -> None:
    """Work on the CPU has ended when the call returns."""


def main(device: str, out: Path, cores: list[int], seconds: float) -> None:
    """Settle on the cores, a thread on each, and write the rates; none where torch cannot use the device."""
    settle(threads=len(cores), cores=cores, allocator="keep")
    import torch

    usable = device == "cpu" or torch.cuda.is_available()
    write_json(out, [asdict(rate) for rate in measure(device, SIZES[device], seconds)] if usable else [])


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), [int(core) for core in sys.argv[3].split(",")], float(sys.argv[4]))
