"""Trace: the graph of an unchanged module, from one batch that it could be given.

torch.export tells every operation with the module in which it ran: operations of one call of a module that holds no
others are one layer, an operation between modules is a layer of its own. What is worked out from weights alone belongs
to the layer that takes it. What cannot be exported is watched instead (graph.hook_trace).
"""

import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch
from torch import nn
from torch.fx import Node
from torch.fx.node import map_arg

from manyhands.compat import HigherOrderOperator
from manyhands.errors import ModelError
from manyhands.graph.flops import einsum_flops, flops, groups, kind_of
from manyhands.graph.graph import Graph, Layer, Shape
from manyhands.graph.hook_trace import traced_by_hooks

FREE = ("getitem", "_assert_tensor_metadata", "sym_size", "detach", "alias")  # nothing is done in a step for these


def trace(model: nn.Module, inputs: torch.Tensor) -> Graph:
    """The graph of a model and its loss for this batch, whose first dimension is that of the samples."""
    with as_it_was(model, inputs):
        try:
            with _quiet():
                program = torch.export.export(model.train(), (inputs,), strict=False)
            layers, scores = _Exported(model, program).layers()
            traced = "export"
        except Exception:  # whatever a user's module does that cannot be exported
            layers, traced = _seen(model.train(), inputs), "modules"
            scores = len(layers) - 1
    if not layers:
        raise ModelError(f"{type(model).__name__} has no layers to split: it must compute something of its input")
    return Graph(inputs.shape[0], (*layers, _loss(layers[scores].output, scores)), traced)


def _seen(model: nn.Module, inputs: torch.Tensor) -> list[Layer]:
    try:
        return traced_by_hooks(model, inputs)
    except Exception as error:
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        shape = tuple(inputs.shape[1:])
        raise ModelError(f"{type(model).__name__} does not take samples of shape {shape}: {reason}") from error


def _loss(scores: Shape, number: int) -> Layer:
    return Layer("loss", "loss", "CrossEntropyLoss", (scores,), scores[:1], (), 5 * prod(scores), (number,))


@contextmanager
def as_it_was(model: nn.Module, inputs: torch.Tensor) -> Iterator[None]:
    """Give modes, buffers and random numbers back: a watched step moves a batch norm's averages."""
    modes = {module: module.training for module in model.modules()}
    buffers = {buffer: buffer.clone() for buffer in model.buffers()}
    with torch.random.fork_rng([inputs.device] if inputs.is_cuda else []):
        try:
            yield
        finally:
            for module, mode in modes.items():
                module.training = mode
            with torch.no_grad():
                for buffer, value in buffers.items():
                    buffer.copy_(value)


@contextmanager
def _quiet() -> Iterator[None]:
    """What export says of a module that it cannot take is of no use to whom the module is watched for."""
    level = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


@dataclass
class _Call:
    """The operations of one layer, as they are found."""

    name: str
    module: nn.Module | None
    nodes: list[Node] = field(default_factory=list)


class _Exported:
    """The operations of an exported program, sorted into layers."""

    def __init__(self, model: nn.Module, program: Any) -> None:
        self.nodes: list[Node] = list(program.graph.nodes)
        self.modules = dict(model.named_modules(remove_duplicate=False))
        self.names = {module: name for name, module in model.named_modules()}
        self.given = set(program.graph_signature.user_inputs)
        self.parameters: dict[str, str] = dict(program.graph_signature.inputs_to_parameters)
        named = model.named_parameters(remove_duplicate=False)
        self.learns = {name: parameter.requires_grad for name, parameter in named}
        self.fixed: dict[Node, tuple[Node, ...]] = {}  # what does not depend on the batch: parameters it is made of
        self.owner: dict[Node, int] = {}  # the layer that makes a result
        self.calls: list[_Call] = []
        self.counted: set[Node] = set()  # a weight that two layers share is the first one's

    def layers(self) -> tuple[list[Layer], int]:
        """All layers, and the number of the one that makes the model's scores."""
        self._sort()
        scores = next(self.owner[node] for node in self.nodes[-1].all_input_nodes if node in self.owner)
        return [self._layer(number, call) for number, call in enumerate(self.calls)], scores

    def _sort(self) -> None:
        seen: dict[str, int] = {}
        last = ""
        for node in self.nodes:
            sources = node.all_input_nodes
            if node.op == "output" or node.name in self.given:
                continue
            if all(source in self.fixed for source in sources):
                own = [node] if node.name in self.parameters else []
                self.fixed[node] = (*own, *(each for source in sources for each in self.fixed[source]))
                continue
            if isinstance(node.target, HigherOrderOperator):
                raise NotImplementedError(f"{node.target} holds operations of its own")
            if _operation(node) in FREE:
                if (source := next((each for each in sources if each in self.owner), None)) is not None:
                    self.owner[node] = self.owner[source]
                continue
            call, path = _place(node)
            module = self.modules.get(path)
            leaf = isinstance(module, nn.MultiheadAttention) or (module is not None and not any(module.children()))
            if not leaf or call != last or not self.calls:
                name = self.names[module] if leaf else ".".join(filter(None, (path, _operation(node))))
                seen[name] = seen.get(name, 0) + 1
                self.calls.append(_Call(name if seen[name] == 1 else f"{name}@{seen[name]}", module if leaf else None))
            last = call if leaf else ""
            self.calls[-1].nodes.append(node)
            self.owner[node] = len(self.calls) - 1

    def _layer(self, number: int, call: _Call) -> Layer:
        after: dict[int, Shape] = {}
        given: list[Shape] = []
        used: dict[Node, None] = {}  # parameters, in their order
        work, pieces = 0, 1
        for node in call.nodes:
            sources = [each for each in _operands(node) if _shape(each) is not None]
            shapes = [_shape(source) or () for source in sources]
            for source, shape in zip(sources, shapes, strict=True):
                if source in self.fixed:
                    used |= dict.fromkeys(self.fixed[source])
                elif self.owner.get(source, number) != number:
                    after.setdefault(self.owner[source], shape)
                elif source not in self.owner:
                    given.append(shape)
            operation, output = _operation(node), _shape(node) or ()
            is_sum = operation == "einsum"
            work += einsum_flops(str(node.args[0]), shapes) if is_sum else flops(operation, shapes, output)
            pieces = max(pieces, groups(operation, shapes, output))
        kind = kind_of([_operation(node) for node in call.nodes])
        own = [
            (self.learns[self.parameters[node.name]], _shape(node) or ()) for node in used if node not in self.counted
        ]
        self.counted |= used.keys()
        return Layer(
            name=call.name,
            # A product of two results has no weights that could be cut.
            kind="other" if kind in ("conv", "dense") and not used else kind,
            operation=type(call.module).__name__ if call.module is not None else _operation(call.nodes[0]),
            inputs=tuple(after.values()) or tuple(given[:1]),
            output=next(made for node in reversed(call.nodes) if (made := _shape(node)) is not None),
            weights=tuple(shape for learns, shape in own if learns),
            flops=work,
            after=tuple(after),
            frozen=sum(prod(shape) for learns, shape in own if not learns),
            groups=pieces,
        )


def _place(node: Node) -> tuple[str, str]:
    """The call of the innermost module in which an operation ran, and that module's path."""
    stack = node.meta.get("nn_module_stack") or {"": ("", "")}
    call = next(reversed(stack))
    return str(call), str(stack[call][0])


def _operation(node: Node) -> str:
    """`linear` for aten.linear.default, `getitem` for the operator."""
    packet = getattr(node.target, "overloadpacket", None)
    return str(packet).rpartition(".")[2] if packet is not None else getattr(node.target, "__name__", str(node.target))


def _operands(node: Node) -> list[Node]:
    """What an operation takes, in its order; what it takes twice is there twice."""
    found: list[Node] = []
    map_arg((node.args, node.kwargs), found.append)
    return found


def _shape(node: Node) -> Shape | None:
    value = node.meta.get("val")
    if isinstance(value, tuple | list):
        value = next((each for each in value if isinstance(each, torch.Tensor)), None)
    return tuple(map(int, value.shape)) if isinstance(value, torch.Tensor) else None
