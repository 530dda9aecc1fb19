"""What a run must not leave on the machine; tests beside this one have segments too, for an instant each."""

import os
import time

KINDS = ("manyhands", "mpich_shm", "torch_", "psm_")  # ours, MPICH's, of torch's loaders, of multiprocessing


def segments(patience: float = 5.0) -> list[str]:
    """Names in shared memory that stay."""
    found = _names()
    deadline = time.monotonic() + patience
    while found and time.monotonic() < deadline:
        time.sleep(0.1)
        found &= _names()
    return sorted(found)


def _names() -> set[str]:
    return {name for name in os.listdir("/dev/shm") if any(kind in name for kind in KINDS)}
