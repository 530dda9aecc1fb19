"""LAMB: Adam, in which the rate of each layer follows its norms.

You et al. 2019, "Large batch optimization for deep learning: training BERT in 76 minutes" (arXiv:1904.00962),
algorithm 2, with the identity for φ; for each layer w with gradient g, at rate η and weight decay λ, in step t:

    m = β₁ m + (1 - β₁) g            r = m / (1 - β₁ᵗ) / (√(v / (1 - β₂ᵗ)) + ε)
    v = β₂ v + (1 - β₂) g²           w = w - η |w| / |r + λ w| (r + λ w)

The ratio is 1 where a norm is 0, and for biases and the weights of norms, whose λ is 0.
"""

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from manyhands.compat import (
    foreach_add_,
    foreach_addcmul_,
    foreach_div,
    foreach_div_,
    foreach_lerp_,
    foreach_mul_,
    foreach_sqrt,
    foreach_sub_,
)
from manyhands.optim.layerwise import Group, Slot, Trusting, rates_of, ratio, squares_of


class LAMB(Trusting):
    """As torch's optimizers are; a rate that is a tensor, and the counts of steps, are read where they are.

    Where it is fused, what changes a layer takes the place of its gradient, which is used up.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        *,
        fused: bool = False,
    ) -> None:
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "fused": fused}
        super().__init__(params, {**defaults, "capturable": True})  # so that a loaded count is put on the device

    def _own(self, parameter: Tensor) -> Slot:
        state = self.state[parameter]
        if "step" not in state:
            state["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device)
        return self._kept(parameter, "exp_avg"), self._kept(parameter, "exp_avg_sq"), state["step"]

    def _ratios(self, how: Group, weights: Tensor, updates: Tensor) -> Tensor:
        found: Tensor = ratio(weights, updates)
        return found

    def _pass(self, how: Group, slots: Sequence[Slot], trusted: Sequence[bool]) -> Tensor:
        from manyhands.optim import cpu_kernels  # numba comes in here

        rate, decay, numbers = float(how["lr"]), how["weight_decay"], _numbers(how, slots)
        given = [(*own, on * decay, rate, on) for own, on in zip(numbers, trusted, strict=True)]
        return cpu_kernels.each(cpu_kernels.lamb_whole, [slot[:4] for slot in slots], given)

    def _measured(self, how: Group, slots: Sequence[Slot]) -> tuple[Tensor, list[Tensor]]:
        decay = how["weight_decay"]
        if how["by"] == "blocks" and slots:
            return _learn_in_blocks(how, slots, decay), []
        if how["by"] == "passes":
            return _learn(how, slots, decay).T, []
        updates = _updates(how, slots, decay)
        return torch.stack([squares_of([slot[0] for slot in slots]), squares_of(updates)]), updates

    def _go(self, how: Group, slots: Sequence[Slot], ratios: Tensor | None, updates: list[Tensor]) -> None:
        weights, rate = [slot[0] for slot in slots], how["lr"]
        if how["by"] == "blocks":
            from manyhands.optim import triton_kernels

            if ratios is None:
                _learn_in_blocks(how, slots, 0.0)
            triton_kernels.lamb([slot[:2] for slot in slots], rates_of(rate, ratios, weights))
            increment_version(weights)
            return
        if how["by"] == "passes":
            from manyhands.optim import cpu_kernels

            if ratios is None:
                _learn(how, slots, 0.0)
            rates = [float(rate)] * len(slots) if ratios is None else (ratios * float(rate)).tolist()
            cpu_kernels.over(cpu_kernels.lamb, [slot[:2] for slot in slots], [(each,) for each in rates])
            increment_version(weights)
            return
        updates = _updates(how, slots, 0.0) if ratios is None else updates
        foreach_mul_(updates, rate if ratios is None else list((ratios * rate).unbind()))
        foreach_sub_(weights, updates)


def _learn(how: Group, slots: Sequence[Slot], decay: float) -> Tensor:
    """Let m and v learn, and gradients become r + λ w; the squares of w and of that."""
    from manyhands.optim import cpu_kernels

    numbers = [(*each, decay) for each in _numbers(how, slots)]
    return cpu_kernels.over(cpu_kernels.moments, [slot[:4] for slot in slots], numbers)


def _learn_in_blocks(how: Group, slots: Sequence[Slot], decay: float) -> Tensor:
    from manyhands.optim import triton_kernels

    beta1, beta2 = how["betas"]
    foreach_add_([slot[-1] for slot in slots], 1)
    count = torch.stack([slot[-1] for slot in slots]).double()
    root = (1 - beta2**count).sqrt()
    numbers = torch.stack([root / (1 - beta1**count), root * how["eps"]], 1).float()
    return triton_kernels.moments([slot[:4] for slot in slots], numbers, how["betas"], decay)


def _numbers(how: Group, slots: Sequence[Slot]) -> list[tuple[float, ...]]:
    """Count a step; what its m and v are kept by, what m is multiplied by, and what is added to √v, for r to be their
    ratio."""
    if not slots:
        return []
    foreach_add_([slot[-1] for slot in slots], 1)
    counts = torch.stack([slot[-1] for slot in slots]).tolist()
    betas = [number for beta in how["betas"] for number in (beta, 1 - beta)]
    made = {count: [1 - beta**count for beta in how["betas"]] for count in set(counts)}
    known = {count: (*betas, math.sqrt(v) / m, math.sqrt(v) * how["eps"]) for count, (m, v) in made.items()}
    return [known[count] for count in counts]


def _updates(how: Group, slots: Sequence[Slot], decay: float) -> list[Tensor]:
    """Let m and v learn, and give r + λ w."""
    if not slots:
        return []
    weights, gradients, means, variances, steps = map(list, zip(*slots, strict=True))
    beta1, beta2 = how["betas"]
    foreach_add_(steps, 1)
    foreach_lerp_(means, gradients, 1 - beta1)
    foreach_mul_(variances, beta2)
    foreach_addcmul_(variances, gradients, gradients, 1 - beta2)
    count = torch.stack(steps).double()
    below = foreach_sqrt(variances)
    foreach_div_(below, list((1 - beta2**count).sqrt().unbind()))
    foreach_add_(below, how["eps"])
    updates = list(foreach_div(means, below))
    foreach_div_(updates, list((1 - beta1**count).unbind()))
    if decay:
        foreach_add_(updates, weights, alpha=decay)
    return updates
