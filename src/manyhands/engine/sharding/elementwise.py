"""Elementwise: what torch's functions do with a tensor of which a rank has some features.

    asked       of the tensor itself, answered without its numbers
    each        number by number: it works on some features as it does on all
    in place    it changes what it is given
    random      it draws

Whatever is not said to be elementwise is given all features of its samples.
"""

import inspect
from typing import Any

import torch
from torch import Tensor

# Methods and attributes that are the same for any part of a tensor.
ASKED = {
    *("dim", "ndim", "ndimension", "dtype", "device", "layout", "get_device", "element_size", "itemsize"),
    *("is_floating_point", "is_complex", "is_contiguous", "is_cuda", "is_cpu", "is_meta", "is_sparse", "is_quantized"),
    *("is_nested", "is_mkldnn", "is_mps", "is_xpu", "is_shared", "is_pinned", "is_inference", "is_sparse_csr"),
    *("requires_grad", "grad_fn", "is_leaf", "output_nr", "_version", "_backward_hooks", "retains_grad", "grad"),
    *("requires_grad_", "register_hook", "retain_grad", "backward", "__hash__", "__repr__", "names", "_is_view"),
    *("stride", "storage_offset", "data_ptr", "_has_symbolic_sizes_strides", "__reduce_ex__"),
}
DECIDES = {"__bool__", "item", "tolist", "__float__", "__int__", "__index__", "numpy", "equal", "allclose"}
# Given sizes, which of no rows are those of the stand-in.
SHAPED = {"view", "reshape", "expand", "unflatten", "repeat", "broadcast_to", "tile", "as_strided", "resize_"}
SHAPED |= {"new_zeros", "new_ones", "new_empty", "new_full"}
SIZES = {"shape", "size", "numel", "nelement", "__len__"}  # answered with those of all features

_BASE = {
    *("relu", "relu6", "gelu", "tanh", "sigmoid", "leaky_relu", "silu", "elu", "selu", "celu", "mish", "softplus"),
    *("hardtanh", "hardswish", "hardsigmoid", "softsign", "logsigmoid", "tanhshrink", "threshold", "dropout"),
    *("add", "mul", "sub", "div", "neg", "exp", "expm1", "log", "log1p", "log2", "sqrt", "rsqrt", "square", "pow"),
    *("reciprocal", "abs", "sign", "sin", "cos", "tan", "atan", "erf", "floor", "ceil", "round", "trunc", "fmod"),
    *("remainder", "clamp", "clamp_min", "clamp_max", "clip", "maximum", "minimum", "lerp", "addcmul", "addcdiv"),
    *("masked_fill", "where", "nan_to_num", "isnan", "isfinite", "isinf", "gt", "lt", "ge", "le", "eq", "ne"),
    *("logical_and", "logical_or", "logical_not", "logical_xor", "true_divide", "multiply", "subtract", "divide"),
    *("bernoulli", "zero", "fill", "negative", "absolute", "xlogy"),
}
_OPERATORS = ("add", "sub", "mul", "truediv", "pow", "floordiv", "mod", "and", "or", "xor")
ELEMENTWISE = {
    *_BASE,
    *(f"{name}_" for name in _BASE),
    *(f"__{way}{name}__" for way in ("", "r", "i") for name in _OPERATORS),
    *("__neg__", "__abs__", "__invert__", "__gt__", "__lt__", "__ge__", "__le__", "__eq__", "__ne__"),
    *("clone", "contiguous", "to", "type", "type_as", "float", "double", "half", "bfloat16", "int", "long", "bool"),
    *("detach", "data", "cpu", "cuda", "zeros_like", "ones_like", "full_like", "empty_like", "rand_like", "randn_like"),
    *("normal_", "uniform_", "exponential_"),
}
RANDOM = {
    *("dropout", "dropout_", "alpha_dropout", "feature_alpha_dropout", "dropout1d", "dropout2d", "dropout3d"),
    *("feature_dropout", "native_dropout", "rrelu", "rrelu_", "bernoulli", "bernoulli_", "normal_", "uniform_"),
    *("exponential_", "cauchy_", "geometric_", "log_normal_", "random_", "rand_like", "randn_like", "randint_like"),
    *("multinomial", "poisson", "gumbel_softmax", "normal"),
}
# They may give what they were given.
PASSES = {"contiguous", "to", "type", "type_as", "float", "double", "half", "bfloat16", "int", "long", "bool"}
PASSES |= {"detach", "data", "cpu", "cuda", "dropout", "nan_to_num"}


def _attributes() -> dict[Any, str]:
    found: dict[Any, str] = {}
    for name in dir(Tensor):
        own = inspect.getattr_static(Tensor, name)
        if inspect.isdatadescriptor(own):
            found[getattr(own, "__get__", None)] = name
            found[getattr(own, "__set__", None)] = f"{name}="
    return found


_NAMES: dict[Any, str] = _attributes()


def name_of(function: Any) -> str:
    """A function's name; of an attribute `name` to read and `name=` to write."""
    name: str = getattr(function, "__name__", "")
    return _NAMES.get(function, name) if name in ("__get__", "__set__") else name


def changes(name: str, arguments: dict[str, Any]) -> bool:
    """Whether a function changes its first argument."""
    if name in ("__setitem__", "data=") or arguments.get("inplace") is True:
        return True
    if name.startswith("__"):
        return name.startswith("__i") and name not in ("__invert__", "__index__", "__int__", "__iter__")
    return name.endswith("_") and name not in ("requires_grad_",)


def keeps_samples(name: str, first: Any, rest: tuple[Any, ...], arguments: dict[str, Any]) -> bool:
    """Whether the samples may still come first: a guess by size alone is wrong where features are as many."""
    if isinstance(first, tuple | list) and first and isinstance(first[0], Tensor):  # several, joined
        first = first[0]
        if name == "stack":
            name = "unsqueeze"
            rest = rest or (arguments.get("dim", 0),)
    if not isinstance(first, Tensor):
        return True
    count = first.dim()

    def holds(dims: Any) -> bool:
        named = dims if isinstance(dims, tuple | list | torch.Size) else (dims,)
        return any(isinstance(each, int) and each % max(count, 1) == 0 for each in named)

    if name in REDUCES:
        dims = arguments.get("dim", rest[0] if rest else None)
        return dims is not None and not isinstance(dims, Tensor | float) and not holds(dims)
    if name in ("cat", "concat", "concatenate"):
        return not holds(arguments.get("dim", rest[0] if rest else 0))
    if name in ("vstack", "row_stack", "dstack"):
        return False
    if name in ("T", "mT", "H", "mH", "t", "adjoint"):
        return name in ("mT", "mH", "adjoint") and count > 2
    if name in ("transpose", "swapaxes", "swapdims", "movedim", "moveaxis"):
        return not (holds(rest) or any(holds(each) for each in arguments.values()))
    if name == "permute":
        dims = rest[0] if rest and isinstance(rest[0], tuple | list) else rest or arguments.get("dims", (0,))
        return bool(dims[0] % count == 0)
    if name == "flatten":
        return not holds(arguments.get("start_dim", rest[0] if rest else 0)) or count < 2
    if name == "__getitem__":
        index = rest[0][0] if isinstance(rest[0], tuple) and rest[0] else rest[0]
        if isinstance(index, Tensor):
            return index.dtype not in (torch.bool, torch.uint8) or isinstance(rest[0], tuple)
        return index is Ellipsis or index == slice(None)
    if name == "unsqueeze":
        return bool((rest or tuple(arguments.values()))[0] % (count + 1) != 0)
    return True


REDUCES = {"mean", "sum", "amax", "amin", "prod", "std", "var", "logsumexp", "argmax", "argmin", "any", "all"}
REDUCES |= {"max", "min", "median", "mode", "nansum", "nanmean", "count_nonzero"}
