"""Idle: parameters of a model of which its scores do not depend."""

import torch
from torch import Tensor, nn

from manyhands.graph.trace import as_it_was


def idle_parameters(model: nn.Module, inputs: Tensor) -> frozenset[str]:
    """Their names; none where a batch like this one cannot be told from."""
    named = {name: each for name, each in model.named_parameters() if each.requires_grad}
    with as_it_was(model, inputs):
        try:
            scores = model.train()(inputs)
            gradients = torch.autograd.grad(scores.sum(), list(named.values()), allow_unused=True)
        except Exception:  # whatever a user's module says of two samples; the training will say it again
            return frozenset()
    return frozenset(name for name, gradient in zip(named, gradients, strict=True) if gradient is None)
