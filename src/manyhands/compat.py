"""Compat: torch's private names, each with what breaks without it, and the releases of torch that were tested."""

import torch
from torch._C import DisableTorchFunctionSubclass
from torch._C._distributed_c10d import (
    FileStore,
    GradBucket,
    HashStore,
    PrefixStore,
    Store,
    TCPStore,
)
from torch._C._distributed_c10d import _create_work_from_future as create_work_from_future  # type: ignore[attr-defined]
from torch._compile import _disable_dynamo as disable_dynamo
from torch._ops import HigherOrderOperator
from torch.distributed.distributed_c10d import _get_default_store as get_default_store
from torch.nn.modules.batchnorm import _BatchNorm as BatchNorm
from torch.nn.modules.batchnorm import _NormBase as NormBase
from torch.nn.modules.conv import _ConvNd as ConvNd
from torch.nn.modules.conv import _ConvTransposeNd as ConvTransposeNd
from torch.nn.modules.dropout import _DropoutNd as DropoutNd
from torch.utils._pytree import tree_leaves, tree_map_only

__all__ = [
    "BatchNorm",  # all batch norms, whatever their dimensions
    "ConvNd",  # all convolutions
    "ConvTransposeNd",
    "DisableTorchFunctionSubclass",  # a tensor in parts: its plain tensor
    "DropoutNd",  # all dropouts
    "FileStore",  # of these six torch.distributed has public names, which its types do not tell
    "GradBucket",
    "HashStore",
    "HigherOrderOperator",  # tracing: which nodes are no operation
    "NormBase",  # which weights have one number a feature
    "PrefixStore",
    "Store",
    "TCPStore",
    "create_work_from_future",  # our process groups: a Work that DDP's reducer waits for
    "disable_dynamo",  # batch norm over ranks in a compiled model; torch.compiler's loads dynamo at once
    "get_default_store",  # naming the ranks that a collective waits for
    "storage_id",
    "tree_leaves",  # tensors in what a user's model takes and gives
    "tree_map_only",
    "untested",
]

TESTED = ((2, 11), (2, 13))  # the oldest and the newest release

# Optimizers over many tensors: a launch a tensor without these.
foreach_add, foreach_add_ = torch._foreach_add, torch._foreach_add_
foreach_addcmul_ = torch._foreach_addcmul_
foreach_copy_ = torch._foreach_copy_
foreach_div, foreach_div_ = torch._foreach_div, torch._foreach_div_
foreach_lerp_ = torch._foreach_lerp_
foreach_mul, foreach_mul_ = torch._foreach_mul, torch._foreach_mul_
foreach_norm = torch._foreach_norm
foreach_sqrt = torch._foreach_sqrt
foreach_sub, foreach_sub_ = torch._foreach_sub, torch._foreach_sub_


def storage_id(tensor: torch.Tensor) -> int:
    """Which memory a tensor lies in, also where that is empty: views in place are told apart by it."""
    return int(tensor.untyped_storage()._cdata)


def untested(version: str) -> str | None:
    """A line about a torch that is newer than what was tested; None for those that were."""
    newest = ".".join(map(str, TESTED[1]))
    number = tuple(int(part) for part in version.split("+")[0].split(".")[:2] if part.isdecimal())
    if number <= TESTED[1]:
        return None
    return f"torch {version} is newer than what manyhands was tested with (up to {newest}): compare with --plan plain"
