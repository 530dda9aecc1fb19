"""Work: what kind of layer an operation makes, and how many floating-point operations its forward pass takes."""

from collections.abc import Sequence
from math import prod

from manyhands.graph.graph import Shape

# By the operation that decides what a layer is; what is not here moves or changes numbers one by one.
KIND_OF = {
    "conv1d": "conv",
    "conv2d": "conv",
    "linear": "dense",
    "matmul": "dense",
    "einsum": "dense",
    "embedding": "embedding",
    "embedding_bag": "embedding",
    "gru": "recurrent",
    "lstm": "recurrent",
    "rnn_tanh": "recurrent",
    "rnn_relu": "recurrent",
    "scaled_dot_product_attention": "attention",
    "batch_norm": "norm",
    "layer_norm": "norm",
    "group_norm": "norm",
    "max_pool2d": "pool",
    "avg_pool2d": "pool",
    "adaptive_avg_pool2d": "pool",
    "adaptive_max_pool2d": "pool",
}
# Each result depends on one position of the inputs alone, or only its place changes.
POINTWISE = {
    *("relu", "relu_", "gelu", "tanh", "sigmoid", "leaky_relu", "silu", "dropout", "feature_dropout", "add", "add_"),
    *("mul", "sub", "div", "pad", "constant_pad_nd", "flatten", "view", "reshape", "to", "clone", "contiguous"),
    *("unsqueeze", "squeeze", "masked_fill", "bitwise_not", "ne", "identity", "zeros", "_to_copy"),
}
GATES = {"gru": 3, "lstm": 4, "rnn_tanh": 1, "rnn_relu": 1}


def kind_of(operations: Sequence[str]) -> str:
    """The kind of a layer, from its operations: that of the first that has one."""
    found = [KIND_OF[each] for each in operations if each in KIND_OF]
    if found:
        return "attention" if "attention" in found else found[0]
    return "pointwise" if all(each in POINTWISE for each in operations) else "other"


def flops(operation: str, inputs: Sequence[Shape], output: Shape) -> int:
    """Products and sums count as two; an operation without either counts its results once.

    inputs: of convolutions and dense layers the batch and the weight; of recurrent ones the batch and all weights.
    """
    elements = prod(output)
    if operation in ("conv1d", "conv2d"):
        return 2 * elements * prod(inputs[1][1:])  # each result: channels of its group × kernel
    if operation == "linear":
        return 2 * elements * inputs[1][-1]
    if operation == "matmul":
        return 2 * elements * inputs[0][-1]
    if operation in GATES:
        steps = prod(inputs[0][:-1])  # samples × positions
        return sum(2 * steps * prod(shape) for shape in inputs[1:] if len(shape) == 2)
    if operation == "scaled_dot_product_attention":
        query, key = inputs[0], inputs[1]
        return 4 * prod(query) * key[-2]  # scores, and the sum that they weigh
    return elements
