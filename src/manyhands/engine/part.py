"""Part: a rank's part of a result, that knows where the rest of it lies.

A model's own code between its layers (`x + shortcut`, `torch.flatten(x, 1)`) runs on parts as it is. Where samples are
cut, it does what it would with fewer samples. Where features are cut, what works on each number by itself goes on;
before anything else the features of a sample are brought together.
"""

from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from manyhands.engine.nested import mapped, tensors
from manyhands.engine.post import Lay, Post
from manyhands.plan.layout import Layout

# Functions that ask a tensor of itself.
ASKS = {
    *("__get__", "size", "dim", "numel", "nelement", "ndimension", "stride", "__len__", "is_floating_point"),
    *("backward", "requires_grad_", "register_hook", "retain_grad", "is_contiguous", "is_complex"),
    *("get_device", "element_size", "__repr__", "__format__", "item", "tolist", "storage_offset"),
    *("data_ptr", "__bool__", "__hash__"),
}
# Functions of each number by itself.
EACH = {
    *("relu", "relu_", "relu6", "gelu", "tanh", "sigmoid", "leaky_relu", "silu", "elu", "softplus", "hardswish"),
    *("dropout", "add", "__add__", "__radd__", "__iadd__", "add_", "mul", "__mul__", "__rmul__", "__imul__", "mul_"),
    *("sub", "__sub__", "__rsub__", "div", "__truediv__", "neg", "__neg__", "exp", "log", "sqrt", "pow"),
    *("__pow__", "abs", "clamp", "clone", "contiguous", "to", "float", "double", "bfloat16", "type_as", "detach"),
}


class Part(Tensor):
    """Made by `part_of`; what comes of parts is a part as well."""

    lay: Lay
    post: Post
    stage: int  # in which it was made
    # Where it lies by now as well, and whether gradients come back from there.
    brought: dict[tuple[Layout, bool], Tensor]

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        with torch._C.DisableTorchFunctionSubclass():
            if name in ASKS:
                result = func(*args, **kwargs)
                if not isinstance(result, Tensor):
                    return result
                asked = tensors(Part, (args, kwargs))[0]
                return part_of(result, asked.post, asked.lay) if result.shape == asked.shape else result
            parts = tensors(Part, (args, kwargs))
            # Where the latest stage has its results: it is for earlier ones to send, never to wait for a later one.
            latest = max(parts, key=lambda part: part.stage)
            lay, post = latest.lay, latest.post
            if not lay.layout.whole and name not in EACH:
                lay = lay.together()
            args, kwargs = mapped(Part, lambda part: moved_like(part, lay), (args, kwargs))
            with post.drawing(lay.layout) if "dropout" in name else nullcontext():
                result = func(*args, **kwargs)
            return mapped(Tensor, lambda tensor: _wrapped(tensor, post, lay), result)


def part_of(tensor: Tensor, post: Post, lay: Lay) -> Part:
    part = tensor.as_subclass(Part)
    part.lay, part.post, part.stage, part.brought = lay, post, post.on_way.stage, {}
    return part


def plain(part: Tensor) -> Tensor:
    with torch._C.DisableTorchFunctionSubclass():
        return part.as_subclass(Tensor)


def moved_like(part: Part, lay: Lay) -> Tensor:
    """A part as a plain tensor, with the rows of another and, if it has as many features, their columns.

    What several layers take, such as that to which a shortcut leads, goes there once, and one gradient comes back.
    """
    want = lay.layout
    if part.lay.dim != lay.dim or part.lay.layout.columns[-1] != want.columns[-1]:
        want = want.of(part.lay.layout.columns[-1])
    if part.lay.layout == want:
        return plain(part)
    key = want, torch.is_grad_enabled()
    if key not in part.brought:
        part.brought[key] = part.post.moved(plain(part), part.lay, want)
    return part.brought[key]


def along(part: Part, dim: int) -> Part:
    """The same with its features counted in another dimension, for which they must be together."""
    if part.lay.dim == dim or dim >= part.dim():
        return part
    if not part.lay.layout.whole:
        lay = part.lay.together()
        part = part_of(moved_like(part, lay), part.post, lay)
    return part_of(plain(part), part.post, Lay(part.lay.layout.of(part.shape[dim]), part.lay.rows, dim))


def _wrapped(tensor: Tensor, post: Post, lay: Lay) -> Tensor:
    """Results with samples first are parts; others, such as a mean over all, are left alone."""
    place = lay.layout.span(post.rank, lay.rows)
    if tensor.dim() < 1 or tensor.shape[0] != place.size:
        return tensor
    if not lay.layout.whole:
        return part_of(tensor, post, lay)
    dim = feature_dim(tensor)
    return part_of(tensor, post, Lay(lay.layout.of(tensor.shape[dim] if dim else 1), lay.rows, dim))


def feature_dim(tensor: Tensor) -> int:
    """Where features lie: after the samples in images, last in tokens and tables."""
    return 1 if tensor.dim() > 3 else tensor.dim() - 1
