"""Cross entropy: scores of which each rank has some classes, and their cross entropy, for which nobody needs them all.

    rank r has the scores z of some classes:        m = max z over all ranks
                                                    e = Σ exp(z − m), t = z of the right class, over all ranks

        loss = m + log e − t        ∂ loss / ∂ z = exp(z − m) / e − [z is of the right class]

so two all-reduces, of three numbers a sample, do what a gather of all scores would. Smoothed by s over C classes, the
right one's 1 becomes 1 − s and every one gains s / C; the sum of all z is the fourth number.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from manyhands.compat import DisableTorchFunctionSubclass
from manyhands.engine.sharding.tensor_parallel_group import Fellows
from manyhands.plan.tensor_layout import Span

# Classes whose scores go round in no more bytes: each of eight once, each of four sums there and back.
FEW = 8


class Classes(NamedTuple):
    """Those that a rank has."""

    own: Span
    whole: int  # how many there are
    fellows: Fellows  # who have the others


class Logits(Tensor):
    """Made by `logits_of`; a loss takes them as it would all scores."""

    classes: Classes

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with DisableTorchFunctionSubclass():
            if func is functional.cross_entropy:
                return _cross_entropy(*args, **kwargs)
            return func(*args, **(kwargs or {}))


def logits_of(scores: Tensor, classes: Classes) -> Logits:
    found = scores.as_subclass(Logits)
    found.classes = classes
    return found


def _cross_entropy(scores: Logits, right: Tensor, *, label_smoothing: float = 0.0, **rest: Any) -> Tensor:
    """The mean over the samples."""
    if rest.get("weight") is not None or rest.get("reduction", "mean") != "mean" or right.is_floating_point():
        raise NotImplementedError("cross entropy of classes on several ranks: the mean over numbered ones, unweighted")
    exact = torch.float64 if scores.dtype == torch.float64 else torch.float32
    result: Tensor = _CrossEntropy.apply(  # type: ignore[no-untyped-call]
        scores.as_subclass(Tensor).to(exact), right, scores.classes, label_smoothing
    )
    return result


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, own: Tensor, right: Tensor, classes: Classes, smoothing: float) -> Tensor:
        place = right - classes.own.begin
        mine = (place >= 0) & (place < classes.own.size)
        place = place.where(mine, 0)
        chosen = own.gather(1, place[:, None])[:, 0].where(mine, 0)
        top = classes.fellows.most(own.amax(1))
        told = [(own - top[:, None]).exp_().sum(1), chosen, *([own.sum(1)] if smoothing else [])]
        powers, rights, *sums = classes.fellows.sum(torch.stack(told)).unbind()
        whole = top + powers.log()
        evenly = smoothing / classes.whole
        losses = whole - (1 - smoothing) * rights - sum(evenly * each for each in sums)
        ctx.save_for_backward(own, whole, place, mine)
        ctx.smoothing, ctx.evenly = smoothing, evenly
        return losses.mean()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        own, whole, place, mine = ctx.saved_tensors
        slope = (own - whole[:, None]).exp_().sub_(ctx.evenly)
        slope.scatter_add_(1, place[:, None], (ctx.smoothing - 1) * mine[:, None].to(own.dtype))
        return slope.mul_(gradient / len(own)), None, None, None
