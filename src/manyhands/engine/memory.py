"""Memory: the peak resident memory of this process, in megabytes."""

from contextlib import suppress
from pathlib import Path

import torch


def reset_peak_memory(device: torch.device) -> None:
    """What the search took is not the training's."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    else:
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")


def peak_memory_mb(device: torch.device) -> float:
    """The most memory since the reset; of the whole process on CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
