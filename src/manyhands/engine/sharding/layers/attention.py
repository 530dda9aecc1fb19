"""Attention: an nn.MultiheadAttention of which each rank has some heads, with their part of the four projections."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from manyhands.errors import ModelError


@dataclass(frozen=True)
class Attention:
    """The module, whose weights are those of this rank's heads; what it gives, all ranks add up."""

    module: nn.MultiheadAttention

    def __call__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, None]:
        module = self.module
        if need_weights or (attn_mask is not None and attn_mask.dim() != 2):
            raise ModelError(
                "an attention that is cut by its heads needs need_weights=False, and a mask of (positions, positions) "
                "for all of them: call it so, or cut it by sample"
            )
        weights = module.in_proj_weight.chunk(3)
        biases = module.in_proj_bias.chunk(3) if module.in_proj_bias is not None else (None,) * 3
        q, k, v = (
            torch.unflatten(functional.linear(given, weight, bias), -1, (-1, module.head_dim)).transpose(1, 2)
            for given, weight, bias in zip((query, key, value), weights, biases, strict=True)
        )
        mixed = functional.scaled_dot_product_attention(
            q, k, v, _mask(attn_mask, key_padding_mask, q.dtype), module.dropout if module.training else 0.0
        )
        out = module.out_proj
        return functional.linear(mixed.transpose(1, 2).flatten(2), out.weight, out.bias), None


def _mask(positions: Tensor | None, padding: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """Both as what is added to scores: a module's masks are True where nothing is to be seen."""
    masks = [
        each if each.is_floating_point() else torch.zeros_like(each, dtype=dtype).masked_fill_(each, float("-inf"))
        for each in (positions, None if padding is None else padding[:, None, None, :])
        if each is not None
    ]
    return sum(masks[1:], masks[0]) if masks else None
