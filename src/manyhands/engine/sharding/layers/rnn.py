"""RNN: the steps of an LSTM, GRU or RNN of which each rank has some hidden units.

    rank 0   x_t, h_t-1 ─→ W⁰ ─→ h⁰_t ┐             ┌─→ x_t+1, h_t ─→ W⁰ ─→
                                      ├─ gathered ──┤
    rank 1   x_t, h_t-1 ─→ W¹ ─→ h¹_t ┘             └─→ x_t+1, h_t ─→ W¹ ─→

What a rank has of the weights are the rows of all gates of its units. They take everyone's units of the step before,
so each step's are gathered; the gradients of what was gathered, of which each rank has a summand, are added up.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from manyhands.engine.sharding.tensor_parallel_group import Fellows
from manyhands.errors import ModelError
from manyhands.plan.tensor_layout import edges

# Of what comes from the input and from the units before, and of the rank's own units and memory: the next of both.
Cell = Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Recurrent:
    """A recurrent module whose weights are this rank's."""

    module: nn.RNNBase
    fellows: Fellows
    bounds: tuple[int, ...]  # where the parts of the hidden units begin and end

    def __call__(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """This rank's columns of the results, and of the last state of each layer and direction."""
        if state is not None:
            raise ModelError(
                f"a {type(self.module).__name__} that is cut by its hidden units begins with zeros: "
                "leave the first state out, or cut it by sample"
            )
        module, lasts, memories = self.module, [], []
        ways = ("", "_reverse") if module.bidirectional else ("",)
        for layer in range(module.num_layers):
            above = layer + 1 < module.num_layers
            if layer and module.dropout and module.training:
                x = functional.dropout(x, module.dropout)
            swept = [self._swept(x, f"l{layer}{way}", above or module.bidirectional, bool(way)) for way in ways]
            x = torch.cat([states for states, _, _ in swept], -1)
            lasts += [last for _, last, _ in swept]
            memories += [memory for _, _, memory in swept]
        if module.bidirectional:  # a part of both directions' results is not one of each
            columns = edges(2 * self.bounds[-1], len(self.bounds) - 1)
            x = x[..., columns[self.fellows.number] : columns[self.fellows.number + 1]]
        found = torch.stack(lasts)
        return x, (found, torch.stack(memories)) if module.mode == "LSTM" else found

    def _swept(self, x: Tensor, name: str, whole: bool, backwards: bool) -> tuple[Tensor, Tensor, Tensor]:
        """One layer in one direction: all units of all steps if `whole`, else this rank's; and its last ones."""
        into, weight = getattr(self.module, f"weight_ih_{name}"), getattr(self.module, f"weight_hh_{name}")
        biases = [getattr(self.module, f"bias_{each}_{name}", None) for each in ("ih", "hh")]
        steps = functional.linear(x, into, biases[0]).unbind(1)
        begin, end = self.bounds[self.fellows.number :][:2]
        own = memory = steps[0].new_zeros(len(x), end - begin)
        everyone = steps[0].new_zeros(len(x), self.bounds[-1])
        cell, found = CELLS[self.module.mode], []
        for number, step in enumerate(reversed(steps) if backwards else steps):
            own, memory = cell(step, functional.linear(everyone, weight, biases[1]), own, memory)
            if whole or number + 1 < len(steps):
                everyone = self._gathered(own)
            found.append(everyone if whole else own)
        return torch.stack(found[::-1] if backwards else found, 1), own, memory

    def _gathered(self, own: Tensor) -> Tensor:
        result: Tensor = _Gathered.apply(own, self.fellows, self.bounds)  # type: ignore[no-untyped-call]
        return result


def _lstm(given: Tensor, before: Tensor, own: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
    add, keep, new, show = (given + before).chunk(4, -1)
    memory = keep.sigmoid() * memory + add.sigmoid() * new.tanh()
    return show.sigmoid() * memory.tanh(), memory


def _gru(given: Tensor, before: Tensor, own: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
    given_reset, given_keep, given_new = given.chunk(3, -1)
    reset, keep, new = before.chunk(3, -1)
    fresh = (given_new + (given_reset + reset).sigmoid() * new).tanh()
    return fresh + (given_keep + keep).sigmoid() * (own - fresh), memory


def _tanh(given: Tensor, before: Tensor, own: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
    return (given + before).tanh(), memory


def _relu(given: Tensor, before: Tensor, own: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
    return (given + before).relu(), memory


CELLS: dict[str, Cell] = {"LSTM": _lstm, "GRU": _gru, "RNN_TANH": _tanh, "RNN_RELU": _relu}


class _Gathered(torch.autograd.Function):
    """Everyone's columns."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, fellows: Fellows, bounds: Sequence[int]) -> Tensor:
        ctx.fellows, (ctx.begin, ctx.end) = fellows, bounds[fellows.number :][:2]
        widest = bounds[1]  # the first parts are
        rows = fellows.rows(functional.pad(own, (0, widest - own.shape[-1])).contiguous())
        sizes = (end - begin for begin, end in pairwise(bounds))
        return torch.cat([row[..., :size] for row, size in zip(rows, sizes, strict=True)], -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return (
            ctx.fellows.sum(gradient)[..., ctx.begin : ctx.end],
            None,
            None,
        )
