"""What each layer costs forward and backward, noted inside real passes.

Layers are not timed alone, in a loop: there a layer finds its input in the cache, in a step it mostly does not. Hooks
note when a module has ended and when the gradient reaches its output; what lies between two notes is the layer's:

    forward     ends of modules          |── conv1 ──|── act1 ──|── pool1 ──|     functions between go to the next
    backward    gradients of outputs     |── pool1 ──|── act1 ──|── conv1 ──|
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from manyhands.data.sampler import Batch
from manyhands.engine.loop.context import TrainContext

REPEATS = 3

Passes = dict[str, tuple[int, int]]  # nanoseconds of a layer, forward and backward


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


def time_layers(context: TrainContext, batch: Batch) -> list[LayerTime]:
    """Time every leaf module. Changes buffers (batch norm) and gradients, so call it when the training is over."""
    modules = dict(context.model.named_modules())
    with Notes(context.model, context.device) as notes:
        taken = [timed_passes(context, batch, notes) for _ in range(REPEATS + 1)][1:]  # the first touches new memory
    context.optimizer.zero_grad(set_to_none=True)
    return [
        LayerTime(
            name,
            type(modules[name.partition("@")[0]]).__name__,
            sum(each.numel() for each in modules[name.partition("@")[0]].parameters()),
            *(statistics.median(each[name][way] for each in taken) / 1e6 for way in (0, 1)),
        )
        for name in taken[0]
    ]


def timed_passes(
    context: TrainContext, batch: Batch, notes: "Notes", run: Callable[[Tensor], Tensor] | None = None
) -> Passes:
    """One forward and one backward pass, and what each layer took of them; `run`: of the model, unless as it is."""
    inputs, labels = context.prepared(context.feed, batch)
    notes.begin()
    with context.autocast():
        loss = context.loss((run or context.model)(inputs), labels)
    loss.backward()  # type: ignore[no-untyped-call]
    return notes.end()


class Notes:
    """Hooks on the leaves of a model: when they end, and when gradients reach their outputs."""

    def __init__(self, model: nn.Module, device: torch.device) -> None:
        self.device = device
        self.begin()
        leaves = [(name, each) for name, each in model.named_modules() if not any(each.children())]
        self.handles = [each.register_forward_hook(self._hook(name)) for name, each in leaves]

    def __enter__(self) -> "Notes":
        return self

    def __exit__(self, *error: object) -> None:
        for handle in self.handles:
            handle.remove()

    def begin(self) -> None:
        self.passed: list[tuple[str, Any]] = []
        self.returned: list[tuple[str, Any]] = []
        self.calls: dict[str, int] = {}
        self.started = self._now()

    def _now(self) -> Any:
        """A moment of the device's own time: what it is given does not run at once."""
        if self.device.type != "cuda":
            return time.perf_counter_ns()
        moment = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        moment.record()
        return moment

    def _hook(self, name: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(module: nn.Module, arguments: Any, output: Any) -> None:
            first = output[0] if isinstance(output, tuple) else output
            self.calls[name] = call = self.calls.get(name, 0) + 1
            called = name if call == 1 else f"{name}@{call}"
            self.passed.append((called, self._now()))
            if isinstance(first, Tensor) and first.requires_grad:
                first.register_hook(  # type: ignore[no-untyped-call]
                    lambda _: self.returned.append((called, self._now()))
                )

        return hook

    def end(self) -> Passes:
        """The passes since the beginning, the backward pass being over."""
        last = self._now()
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        forward, at = {}, self.started
        for name, moment in self.passed:
            forward[name], at = self._between(at, moment), moment
        backward = dict.fromkeys(forward, 0)
        for (name, moment), (_, following) in zip(self.returned, [*self.returned[1:], ("", last)], strict=True):
            backward[name] += self._between(moment, following)
        return {name: (forward[name], backward[name]) for name in forward}

    def _between(self, one: Any, other: Any) -> int:
        return int(other - one) if self.device.type != "cuda" else round(1e6 * one.elapsed_time(other))
