"""Objects: values other than tensors between ranks, as JSON and bytes; nothing that is received is ever executed.

    │ bytes of the JSON │ JSON, with {"tensor": [dtype, shape]} where a tensor stands │ first tensor │ second tensor │ …

Torch's own `broadcast_object_list` and `all_gather_object` unpickle what another rank has sent.
"""

import json
import struct
from collections.abc import Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

HEAD = struct.Struct("!Q")
DTYPES = {str(each): each for each in vars(torch).values() if isinstance(each, torch.dtype)}


def broadcast(value: Any, group: Any = None) -> Any:
    """The value of a group's first rank, on every rank."""
    leads = dist.get_rank(group) == 0
    message = encoded(value) if leads else b""
    size = _on_device(torch.tensor([len(message)]), group)
    dist.broadcast(size, group=group, group_src=0)
    row = _on_device(_row(message) if leads else torch.empty(int(size), dtype=torch.uint8), group)
    dist.broadcast(row, group=group, group_src=0)
    return value if leads else decoded(row.cpu())


def gather(value: Any, group: Any = None) -> list[Any]:
    """Every rank's value, in order of rank."""
    message = encoded(value)
    size = _on_device(torch.tensor([len(message)]), group)
    sizes = [torch.empty_like(size) for _ in range(dist.get_world_size(group))]
    dist.all_gather(sizes, size, group=group)
    row = _on_device(_row(message.ljust(max(map(int, sizes)), b"\0")), group)
    rows = [torch.empty_like(row) for _ in sizes]
    dist.all_gather(rows, row, group=group)
    return [decoded(row.cpu()) for row in rows]


def encoded(value: Any) -> bytes:
    tensors: list[Tensor] = []
    text = json.dumps(_plain(value, tensors)).encode()
    return b"".join([HEAD.pack(len(text)), text, *map(_bytes, tensors)])


def decoded(row: Tensor) -> Any:
    memory = row.numpy()
    (length,) = HEAD.unpack(memory[: HEAD.size].tobytes())
    rest = row[HEAD.size + length :]
    return _value(json.loads(memory[HEAD.size : HEAD.size + length].tobytes()), _Reader(rest))


class _Reader:
    """Tensors from a row of bytes, one after the other."""

    def __init__(self, row: Tensor) -> None:
        self.row = row

    def take(self, dtype: torch.dtype, shape: list[int]) -> Tensor:
        tensor = torch.empty(shape, dtype=dtype)
        count = tensor.nbytes
        if count:
            tensor.view(-1).view(torch.uint8).copy_(self.row[:count])
        self.row = self.row[count:]
        return tensor


def _plain(value: Any, tensors: list[Tensor]) -> Any:
    """A value as JSON has it; what JSON does not know is a table of one key."""
    match value:
        case None | bool() | str():
            return value
        case Integral():
            return int(value)
        case Real():
            return float(value)
        case Tensor():
            tensors.append(value)
            return {"tensor": [str(value.dtype), list(value.shape)]}
        case list():
            return [_plain(each, tensors) for each in value]
        case tuple():
            return {"tuple": [_plain(each, tensors) for each in value]}
        case Path():
            return {"path": str(value)}
        case Mapping():
            return {"table": [[_plain(key, tensors), _plain(each, tensors)] for key, each in value.items()]}
    raise TypeError(f"a {type(value).__name__} cannot go to another rank: only plain values and tensors can")


def _value(plain: Any, reader: _Reader) -> Any:
    if isinstance(plain, list):
        return [_value(each, reader) for each in plain]
    if not isinstance(plain, dict):
        return plain
    ((kind, content),) = plain.items()
    if kind == "tensor":
        return reader.take(DTYPES[content[0]], content[1])
    if kind == "path":
        return Path(content)
    if kind == "tuple":
        return tuple(_value(each, reader) for each in content)
    return {_value(key, reader): _value(each, reader) for key, each in content}


def _bytes(tensor: Tensor) -> bytes:
    return tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def _row(message: bytes) -> Tensor:
    return torch.frombuffer(bytearray(message), dtype=torch.uint8)


def _on_device(tensor: Tensor, group: Any) -> Tensor:
    """NCCL sends what lies on a GPU alone."""
    return tensor.cuda() if dist.get_backend(group) == "nccl" else tensor
