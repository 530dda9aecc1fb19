"""Trace: the graph of an unchanged module, from one batch that it could be given.

torch.export tells every operation with the module in which it ran: operations of one call of a module that holds no
others are one layer, an operation between modules is a layer of its own. What cannot be exported is watched instead:
the modules as they are called, as a chain.
"""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch
from torch import nn
from torch.fx import Node

from manyhands.graph.graph import Graph, Layer, Shape
from manyhands.graph.work import flops, kind_of

FREE = ("getitem", "_assert_tensor_metadata", "sym_size", "detach", "alias")  # nothing is done in a step for these


def trace(model: nn.Module, inputs: torch.Tensor) -> Graph:
    """The graph of a model and its loss for this batch, whose first dimension is that of the samples."""
    training = model.training
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of export: what it makes of tensors that modules keep beside buffers
            program = torch.export.export(model.train(), (inputs,), strict=False)
        layers, traced = _exported(model, program), "export"
    except Exception:  # whatever a user's module does that cannot be exported
        layers, traced = _watched(model, inputs), "modules"
    finally:
        model.train(training)
    return Graph(inputs.shape[0], (*layers, _loss(layers)), traced)


def _loss(layers: Sequence[Layer]) -> Layer:
    scores = layers[-1].output
    return Layer("loss", "loss", "CrossEntropyLoss", (scores,), scores[:1], (), 5 * prod(scores), (len(layers) - 1,))


@dataclass
class _Call:
    """The operations of one layer, as they are found."""

    name: str
    module: nn.Module | None
    nodes: list[Node] = field(default_factory=list)


def _exported(model: nn.Module, program: Any) -> list[Layer]:
    modules = dict(model.named_modules())
    calls: list[_Call] = []
    owner: dict[Node, int] = {}
    seen: dict[str, int] = {}
    last = ""
    for node in program.graph.nodes:
        if node.op != "call_function":
            continue
        call, path = _place(node)
        module = modules.get(path)
        leaf = module is not None and not any(module.children())
        if _operation(node) in FREE:
            source = next((each for each in node.all_input_nodes if each in owner), None)
            if source is not None:
                owner[node] = owner[source]
                continue
        if not leaf or call != last or not calls:
            name = path if leaf else ".".join(filter(None, (path, _operation(node))))
            seen[name] = seen.get(name, 0) + 1
            calls.append(_Call(name if seen[name] == 1 else f"{name}@{seen[name]}", module if leaf else None))
        last = call if leaf else ""
        calls[-1].nodes.append(node)
        owner[node] = len(calls) - 1
    weights = dict(program.graph_signature.inputs_to_parameters)
    counted: set[str] = set()  # a weight that two layers share is the first one's
    return [_layer(number, call, owner, weights, counted) for number, call in enumerate(calls)]


def _place(node: Node) -> tuple[str, str]:
    """The call of the innermost module in which an operation ran, and that module's path."""
    stack = node.meta.get("nn_module_stack") or {"": ("", "")}
    call = next(reversed(stack))
    return str(call), str(stack[call][0])


def _operation(node: Node) -> str:
    """`linear` for aten.linear.default, `getitem` for the operator."""
    packet = getattr(node.target, "overloadpacket", None)
    return str(packet).rpartition(".")[2] if packet is not None else getattr(node.target, "__name__", str(node.target))


def _layer(number: int, call: _Call, owner: dict[Node, int], weights: dict[str, str], counted: set[str]) -> Layer:
    after: dict[int, Shape] = {}
    given: list[Shape] = []
    held: list[Shape] = []
    work = 0
    for node in call.nodes:
        shapes = []
        for source in node.all_input_nodes:
            shape = _shape(source)
            if shape is None:
                continue
            shapes.append(shape)
            parameter = weights.get(source.name)
            if parameter is not None:
                if parameter not in counted:
                    counted.add(parameter)
                    held.append(shape)
            elif source in owner:
                if owner[source] != number:
                    after.setdefault(owner[source], shape)
            elif source.op == "placeholder" and not source.name.startswith(("b_", "c_")):
                given.append(shape)
        work += flops(_operation(node), shapes, _shape(node) or ())
    operation = type(call.module).__name__ if call.module is not None else _operation(call.nodes[0])
    return Layer(
        name=call.name,
        kind=kind_of([_operation(node) for node in call.nodes]),
        operation=operation,
        inputs=tuple(after.values()) or tuple(given[:1]),
        output=next(shape for node in reversed(call.nodes) if (shape := _shape(node)) is not None),
        weights=tuple(held),
        flops=work,
        after=tuple(after),
    )


def _shape(node: Node) -> Shape | None:
    value = node.meta.get("val")
    if isinstance(value, tuple | list):
        value = next((each for each in value if isinstance(each, torch.Tensor)), None)
    return tuple(map(int, value.shape)) if isinstance(value, torch.Tensor) else None


# What a module that is only watched does, by the name of its class.
CLASSES = {
    "Conv1d": "conv1d",
    "Conv2d": "conv2d",
    "Linear": "linear",
    "Embedding": "embedding",
    "EmbeddingBag": "embedding_bag",
    "GRU": "gru",
    "LSTM": "lstm",
    "RNN": "rnn_tanh",
    "BatchNorm1d": "batch_norm",
    "BatchNorm2d": "batch_norm",
    "LayerNorm": "layer_norm",
    "MaxPool2d": "max_pool2d",
    "AvgPool2d": "avg_pool2d",
    "AdaptiveAvgPool2d": "adaptive_avg_pool2d",
    "ReLU": "relu",
    "GELU": "gelu",
    "Dropout": "dropout",
    "Flatten": "flatten",
    "Identity": "identity",
}


def _watched(model: nn.Module, inputs: torch.Tensor) -> list[Layer]:
    """The modules that hold no others, in the order in which they are called."""
    layers: list[Layer] = []
    counted: set[int] = set()

    def watch(name: str, module: nn.Module) -> Any:
        def hook(_: nn.Module, arguments: tuple[Any, ...], result: Any) -> None:
            taken = [tuple(each.shape) for each in _tensors(arguments)]
            given = next(_tensors((result,)), None)
            if given is None:
                return
            fresh = [each for each in module.parameters(recurse=False) if id(each) not in counted]
            counted.update(map(id, fresh))
            held = [tuple(each.shape) for each in fresh]
            operation = CLASSES.get(type(module).__name__, "")
            output = tuple(given.shape)
            calls = sum(each.name.partition("@")[0] == name for each in layers)
            layers.append(
                Layer(
                    name=name if not calls else f"{name}@{calls + 1}",
                    kind=kind_of([operation]),
                    operation=type(module).__name__,
                    inputs=tuple(taken[:1]),
                    output=output,
                    weights=tuple(held),
                    flops=flops(operation, [*taken[:1], *held], output),
                    after=(len(layers) - 1,) if layers else (),
                )
            )

        return module.register_forward_hook(hook)

    handles = [watch(name, each) for name, each in model.named_modules() if not any(each.children())]
    try:
        with torch.no_grad():
            model(inputs)
    finally:
        for handle in handles:
            handle.remove()
    return layers


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, tuple | list):
            yield from _tensors(value)
