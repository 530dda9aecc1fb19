"""Process setup: cores, threads, and an allocator that keeps its memory."""

import ctypes
import os
import sys
from collections.abc import Sequence

# Parameters of glibc's mallopt(3).
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX, M_ARENA_MAX = -1, -2, -4, -8


def settle(*, threads: int | None = None, cores: Sequence[int] | None = None, allocator: str = "default") -> None:
    """Pin the process, set the number of threads inside one operation, and choose the allocator's habit.

    Call it before torch is imported where possible: OpenMP reads its settings once, and threads that exist
    already are not pinned again.
    """
    if cores:
        os.sched_setaffinity(0, cores)
    if threads is not None:
        os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(threads)
        if torch := sys.modules.get("torch"):
            torch.set_num_threads(threads)
    if allocator == "keep" and keep_memory():
        os.environ["THP_MEM_ALLOC_ENABLE"] = "1"  # torch then asks for huge pages: 5 % in bf16, 2 cores


def keep_memory() -> bool:
    """Tell glibc to keep freed memory instead of returning it to the kernel; False where there is no glibc.

    By default every activation above 128 KiB is mapped, faulted in page by page and unmapped again at each
    step. Kept, the MNIST convnet at batch 256 trains 1.4 times as fast on 2 cores (benchmarks/results). All
    threads have one arena, since others keep no more than 64 MiB: interleaved passes of AlexNet, which are
    threads, took 1.4 times as long with arenas of their own.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    habit = ((M_MMAP_MAX, 0), (M_TRIM_THRESHOLD, 2**31 - 1), (M_TOP_PAD, 64 * 2**20), (M_ARENA_MAX, 1))
    return all(mallopt(parameter, value) == 1 for parameter, value in habit)
