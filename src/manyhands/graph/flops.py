"""Flops: what kind of layer an operation makes, and how many floating-point operations its forward pass takes."""

from collections.abc import Sequence
from math import prod

from manyhands.graph.graph import Shape

CONVOLUTIONS = ("conv1d", "conv2d", "conv3d")
TRANSPOSED = ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
ADDED = ("addmm", "addbmm", "baddbmm")  # what is added comes before the two factors
PRODUCTS = ("matmul", "mm", "bmm", *ADDED)
SEQUENCES = ("gru", "lstm", "rnn_tanh", "rnn_relu")
CELLS = {"gru_cell": 2, "rnn_tanh_cell": 2, "rnn_relu_cell": 2, "lstm_cell": 3}  # inputs before the weights
ATTENTION = "scaled_dot_product_attention"
NORMS = ("batch_norm", "layer_norm", "group_norm", "instance_norm", "rms_norm")
POOLS = ("max_pool", "avg_pool", "adaptive_avg_pool", "adaptive_max_pool")

# By the operation that decides what a layer is; what is not here moves or changes numbers one by one.
KIND_OF = {
    **dict.fromkeys((*CONVOLUTIONS, *TRANSPOSED), "conv"),
    **dict.fromkeys(("linear", *PRODUCTS), "dense"),
    **dict.fromkeys(("embedding", "embedding_bag"), "embedding"),
    **dict.fromkeys((*SEQUENCES, *CELLS), "recurrent"),
    ATTENTION: "attention",
    **dict.fromkeys(NORMS, "norm"),
    **{f"{pool}{dimensions}d": "pool" for pool in POOLS for dimensions in (1, 2, 3)},
}
# Each result depends on one position of the inputs alone, or only its place changes.
POINTWISE = {
    *("relu", "relu6", "gelu", "tanh", "sigmoid", "leaky_relu", "silu", "elu", "selu", "celu", "mish", "hardtanh"),
    *("hardswish", "hardsigmoid", "softplus", "log_sigmoid", "dropout", "feature_dropout", "alpha_dropout", "add"),
    *("mul", "sub", "rsub", "div", "neg", "exp", "log", "sqrt", "rsqrt", "pow", "abs", "clamp", "where", "pad"),
    *("constant_pad_nd", "flatten", "view", "reshape", "to", "clone", "contiguous", "unsqueeze", "squeeze"),
    *("masked_fill", "bitwise_not", "ne", "identity", "zeros", "_to_copy"),
}
# Heads are made of features and features of heads by these.
REARRANGES = {"unflatten", "transpose", "permute", "slice", "select", "chunk", "split"}


def kind_of(operations: Sequence[str]) -> str:
    """The kind of a layer, from its operations: that of the one that has a kind, if the others leave features apart."""
    found = [KIND_OF[each] for each in operations if each in KIND_OF]
    rest = {each.removesuffix("_") for each in operations if each not in KIND_OF} - POINTWISE
    if found == ["attention"]:
        rest -= REARRANGES
    if rest or len(found) > 1:
        return "other"
    return found[0] if found else "pointwise"


def groups(operation: str, inputs: Sequence[Shape], output: Shape) -> int:
    """How many pieces of the features take nothing of each other: a convolution's groups, an attention's heads."""
    if operation in CONVOLUTIONS:
        return inputs[0][1] // inputs[1][1]
    if operation in TRANSPOSED:
        return output[1] // inputs[1][1]
    if operation == ATTENTION:
        return inputs[0][-3] if len(inputs[0]) > 3 else 1
    return 1


def flops(operation: str, inputs: Sequence[Shape], output: Shape) -> int:
    """Products and sums count as two; an operation without either counts its results once.

    inputs: of convolutions and dense layers the batch and the weight; of recurrent ones the batch and all weights.
    """
    elements = prod(output)
    if operation in CONVOLUTIONS:
        return 2 * elements * prod(inputs[1][1:])  # each result: channels of its group × kernel
    if operation in TRANSPOSED:
        return 2 * prod(inputs[0]) * prod(inputs[1][1:])  # each number of the input goes into as many results
    if operation == "linear":
        return 2 * elements * inputs[1][-1]
    if operation in PRODUCTS:
        return 2 * elements * inputs[1 if operation in ADDED else 0][-1]
    if operation in SEQUENCES or operation in CELLS:
        steps = prod(inputs[0][:-1])  # samples × positions
        return sum(2 * steps * prod(shape) for shape in inputs[CELLS.get(operation, 1) :] if len(shape) == 2)
    if operation == ATTENTION:
        query, key = inputs[0], inputs[1]
        return 4 * prod(query) * key[-2]  # scores, and the sum that they weigh
    return elements


def einsum_flops(equation: str, inputs: Sequence[Shape]) -> int:
    """Of a sum over products: one product and one sum for each combination of all letters.

    >>> einsum_flops("bkl,lok->bol", [(2, 3, 5), (5, 7, 3)])
    420
    """
    sides = equation.replace(" ", "").partition("->")[0].split(",")
    size = {
        letter: length
        for letters, shape in zip(sides, inputs, strict=True)
        for letter, length in _sizes(letters, shape)
    }
    return 2 * prod(size.values())


def _sizes(letters: str, shape: Shape) -> list[tuple[str, int]]:
    """The length of each letter of one factor; dots stand for the dimensions that have none."""
    before, dots, behind = letters.partition("...")
    if not dots:
        return list(zip(letters, shape, strict=True))
    between = shape[len(before) : len(shape) - len(behind)]
    named = [*zip(before, shape, strict=False), *zip(behind, shape[len(shape) - len(behind) :], strict=True)]
    return [*named, *((f"...{len(between) - place}", length) for place, length in enumerate(between))]
