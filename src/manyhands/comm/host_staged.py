"""Host staged: a tensor from one rank to another; one of a GPU by way of the host, whose memory alone gloo sends.

(NCCL would carry it from GPU to GPU, but knows no tags: what two ranks send each other must be asked for in one order
on both, and stages of a pipeline do not keep one. Nor can ranks share a GPU there.)
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True)
class Going:
    """What is held until it has gone."""

    work: Any
    message: Tensor

    def wait(self) -> None:
        self.work.wait()


@dataclass(frozen=True)
class Coming:
    """What has yet to come, and the device that wants it."""

    work: Any
    buffer: Tensor
    device: torch.device

    def wait(self) -> Tensor:
        self.work.wait()
        return self.buffer.to(self.device)


def send(tensor: Tensor, target: int, *, tag: int = 0, group: Any = None) -> Going:
    message = tensor.cpu().contiguous()
    return Going(dist.isend(message, target, group, tag), message)


def receive(like: Tensor, *shape: int, source: int, tag: int = 0, group: Any = None) -> Coming:
    """Of the type and on the device of another, of a shape of its own."""
    buffer = torch.empty(shape, dtype=like.dtype, pin_memory=like.is_cuda)
    return Coming(dist.irecv(buffer, source, group, tag), buffer, like.device)
