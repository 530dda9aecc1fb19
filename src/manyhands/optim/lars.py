"""LARS: SGD with momentum, in which the rate of each layer follows its norms.

You, Gitman, Ginsburg 2017, "Large batch training of convolutional networks" (arXiv:1708.03888), algorithm 1; for each
layer w with gradient g, at rate γ, momentum m, weight decay β and trust coefficient η:

    λ = η |w| / (|g| + β |w|)
    v = m v + γ λ (g + β w)
    w = w - v

λ is η where a norm is 0, and for biases and the weights of norms, whose β is 0.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from manyhands.compat import foreach_add, foreach_add_, foreach_mul, foreach_mul_, foreach_sub_
from manyhands.optim.layerwise import Group, Slot, Trusting, rates_of, ratio, squares_of

COEFFICIENT = 0.001


class LARS(Trusting):
    """As torch's optimizers are; a rate that is a tensor is read where it is."""

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float | Tensor = 1.0,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        trust: float = COEFFICIENT,
        *,
        fused: bool = False,
    ) -> None:
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "trust": trust, "fused": fused}
        super().__init__(params, defaults)
        self.written: dict[Tensor, tuple[int, int, float]] = {}  # where, as which version, and the squares

    def _own(self, parameter: Tensor) -> Slot:
        return (self._kept(parameter, "momentum_buffer"),)

    def _pass(self, how: Group, slots: Sequence[Slot], trusted: Sequence[bool]) -> Tensor:
        from manyhands.optim import cpu_kernels  # numba comes in here

        rate, decay = how["trust"] * float(how["lr"]), how["weight_decay"]
        known = [self._known(slot[0]) for slot in slots]
        numbers = [
            (how["momentum"], rate, on * decay, on, squares is not None, squares or 0.0)
            for on, squares in zip(trusted, known, strict=True)
        ]
        return cpu_kernels.each(cpu_kernels.lars_whole, slots, numbers)

    def _note(self, slots: Sequence[Slot], told: Tensor) -> None:
        if self.alone:
            for (weight, *_), squares in zip(slots, told[:, 0].tolist(), strict=True):
                self.written[weight] = weight.data_ptr(), weight._version, squares

    def _known(self, weight: Tensor) -> float | None:
        """The squares of a weight that is as the last step has left it: it need not be read for them."""
        if not self.alone:
            return None
        place, version, squares = self.written.get(weight, (0, 0, None))
        return squares if (place, version) == (weight.data_ptr(), weight._version) else None

    def _measured(self, how: Group, slots: Sequence[Slot]) -> tuple[Tensor, list[Tensor]]:
        if how["by"] == "blocks" and slots:
            from manyhands.optim import triton_kernels

            return triton_kernels.squares([slot[:2] for slot in slots]), []
        if how["by"] == "passes":
            from manyhands.optim import cpu_kernels

            known = [self._known(slot[0]) for slot in slots]
            found = cpu_kernels.over(cpu_kernels.squares, slots, [(squares is not None,) for squares in known])
            for row, squares in enumerate(known):
                if squares is not None:
                    found[row, 0] = squares
            return found.T, []
        return torch.stack([squares_of([slot[side] for slot in slots]) for side in (0, 1)]), []

    def _ratios(self, how: Group, weights: Tensor, updates: Tensor) -> Tensor:
        found: Tensor = ratio(weights, updates + how["weight_decay"] * weights)
        return found

    def _go(self, how: Group, slots: Sequence[Slot], ratios: Tensor | None, updates: list[Tensor]) -> None:
        rate, decay = how["trust"] * how["lr"], 0.0 if ratios is None else how["weight_decay"]
        weights, gradients, speeds = map(list, zip(*slots, strict=True))
        if how["by"] == "blocks":
            from manyhands.optim import triton_kernels

            triton_kernels.lars(slots, rates_of(rate, ratios, weights), how["momentum"], decay)
            increment_version(weights)
            return
        if how["by"] == "passes":
            from manyhands.optim import cpu_kernels

            rates = [float(rate)] * len(slots) if ratios is None else (ratios * float(rate)).tolist()
            told = cpu_kernels.over(cpu_kernels.lars, slots, [(how["momentum"], each, decay) for each in rates])
            increment_version(weights)
            self._note(slots, told)
            return
        if decay:
            gradients = list(foreach_add(gradients, weights, alpha=decay))
        foreach_mul_(speeds, how["momentum"])
        scaled = foreach_mul(gradients, rate if ratios is None else list((ratios * rate).unbind()))
        foreach_add_(speeds, scaled)
        foreach_sub_(weights, speeds)
