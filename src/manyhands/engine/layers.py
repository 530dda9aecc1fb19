"""What each layer costs forward and backward, measured layer by layer on the input that it really gets."""

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from manyhands.data.feed import Batch
from manyhands.engine.step import Trainee

REPEATS = 3


@dataclass(frozen=True)
class LayerTime:
    """One layer of the model: medians in milliseconds."""

    name: str
    kind: str
    parameters: int
    forward_ms: float
    backward_ms: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def time_layers(trainee: Trainee, batch: Batch) -> list[LayerTime]:
    """Time every leaf module apart. Changes buffers (batch norm), so call it when the training is over."""
    inputs, _ = trainee.prepared(trainee.feed, batch)
    with trainee.autocast():
        seen = _inputs_of_leaves(trainee.model, inputs)
        times = []
        for name, layer, arguments in seen:
            forward, backward = _time(layer, arguments, trainee.device)
            parameters = sum(each.numel() for each in layer.parameters())
            times.append(LayerTime(name, type(layer).__name__, parameters, forward, backward))
    return times


def _inputs_of_leaves(model: nn.Module, inputs: Tensor) -> list[tuple[str, nn.Module, tuple[Any, ...]]]:
    """Every leaf that the model calls with positional tensors, in the order of its first call."""
    seen: dict[str, tuple[str, nn.Module, tuple[Any, ...]]] = {}

    def keep(name: str) -> Callable[[nn.Module, tuple[Any, ...]], None]:
        def hook(module: nn.Module, arguments: tuple[Any, ...]) -> None:
            seen.setdefault(name, (name, module, tuple(map(_fresh, arguments))))

        return hook

    leaves = [(name, each) for name, each in model.named_modules() if not any(each.children())]
    handles = [leaf.register_forward_pre_hook(keep(name)) for name, leaf in leaves]
    try:
        with torch.no_grad():
            model(inputs)
    finally:
        for handle in handles:
            handle.remove()
    return [each for each in seen.values() if each[2]]


def _fresh(value: Any) -> Any:
    """A leaf of its own graph, so that the backward pass reaches this layer alone."""
    if not isinstance(value, Tensor):
        return value
    value = value.detach().clone(memory_format=torch.preserve_format)
    return value.requires_grad_() if value.is_floating_point() else value


def _copied(value: Any) -> Any:
    """For a layer that works in place: autograd does not let it write into a leaf."""
    return value.clone() if isinstance(value, Tensor) else value


def _time(layer: nn.Module, arguments: tuple[Any, ...], device: torch.device) -> tuple[float, float]:
    targets = [each for each in arguments if isinstance(each, Tensor) and each.requires_grad]
    targets += [each for each in layer.parameters() if each.requires_grad]
    forward, backward = [], []
    for _ in range(REPEATS + 1):
        given = tuple(map(_copied, arguments)) if getattr(layer, "inplace", False) else arguments
        taken, output = _clocked(partial(layer, *given), device)
        forward.append(taken)
        first = output[0] if isinstance(output, tuple) else output
        if not (isinstance(first, Tensor) and first.requires_grad and targets):
            backward.append(0.0)
            continue
        back = partial(torch.autograd.grad, first, targets, torch.ones_like(first), allow_unused=True)
        backward.append(_clocked(back, device)[0])
    # The first call chooses kernels and touches new memory.
    return statistics.median(forward[1:]), statistics.median(backward[1:])


def _clocked(work: Callable[[], Any], device: torch.device) -> tuple[float, Any]:
    def finish() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    finish()
    start = time.perf_counter()
    result = work()
    finish()
    return 1000 * (time.perf_counter() - start), result
