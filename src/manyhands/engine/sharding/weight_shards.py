"""Weight shards: which part of a weight a rank has.

a dense layer's, by output      a GRU's, by hidden units: some of each gate
┌──────────┐                    ┌──────────┐
│          │                    │▒▒▒▒▒▒▒▒▒▒│  reset
│▒▒▒▒▒▒▒▒▒▒│                    ├──────────┤
│▒▒▒▒▒▒▒▒▒▒│                    │▒▒▒▒▒▒▒▒▒▒│  update
│          │                    ├──────────┤
│          │                    │▒▒▒▒▒▒▒▒▒▒│  new
└──────────┘                    └──────────┘
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from manyhands.compat import ConvNd, ConvTransposeNd, NormBase
from manyhands.errors import ModelError, PlanError
from manyhands.graph.graph import Layer
from manyhands.plan.sharding import Split
from manyhands.plan.sharding_rules import GATES, LOCAL
from manyhands.plan.tensor_layout import Span


class Piece(NamedTuple):
    """A block of a weight, or like blocks of all that lie one above the other in it."""

    spans: tuple[Span, ...]  # of one of them, by dimension
    blocks: int = 1

    @property
    def shape(self) -> tuple[int, ...]:
        sizes = tuple(span.size for span in self.spans)
        return (self.blocks * sizes[0], *sizes[1:]) if sizes else ()

    def of(self, whole: Tensor) -> Tensor:
        """The piece of a tensor like the whole weight, as a tensor of its own."""
        view = self._view(whole)
        return (view.flatten(0, 1) if self.blocks > 1 else view).clone()

    def put(self, whole: Tensor, own: Tensor) -> None:
        """Write the piece into a tensor like the whole weight."""
        view = self._view(whole)
        view.copy_(own.reshape(view.shape))

    def _view(self, whole: Tensor) -> Tensor:
        within = tuple(slice(span.begin, span.end) for span in self.spans)
        return torch.unflatten(whole, 0, (self.blocks, -1))[:, *within] if self.blocks > 1 else whole[within]


class Way(NamedTuple):
    """How a weight can be cut: by parameter and by reduction, in which dimensions."""

    parameter: int | None = None
    reduction: int | None = None
    blocks: int = 1  # what lies one above the other, each cut alike
    pieces: int = 1  # that stay whole when cut by reduction


def way_of(module: nn.Module, name: str) -> Way:
    """How a weight of a module is cut; nowhere, if it is not known."""
    if isinstance(module, nn.RNNBase):
        return Way(parameter=0, blocks=GATES.get(type(module).__name__, 1))
    if isinstance(module, nn.MultiheadAttention):
        if name.startswith("in_proj"):  # queries, keys, values
            return Way(reduction=0, blocks=3, pieces=module.num_heads)
        return Way(reduction=1, pieces=module.num_heads) if name == "out_proj.weight" else Way()
    if type(module).__name__ == LOCAL:
        return Way(parameter=1 if name == "weight" else 0)
    if name == "bias" and isinstance(module, nn.Linear | ConvNd):
        return Way(parameter=0)
    if isinstance(module, ConvTransposeNd):
        return Way(parameter=1, reduction=0)
    if isinstance(module, nn.Linear | ConvNd):
        return Way(parameter=0, reduction=1)
    if isinstance(module, nn.Embedding | nn.EmbeddingBag):
        return Way(parameter=1, reduction=0)
    if isinstance(module, NormBase):
        return Way(parameter=0)
    return Way()


def check(module: nn.Module, layer: Layer, split: Split) -> None:
    """Refuse what cannot be cut so."""
    name, cut = f"layer {layer.name} ({type(module).__name__})", split.parameter * split.reduction > 1
    if isinstance(module, nn.RNNBase | nn.MultiheadAttention) and not module.batch_first:
        raise ModelError(f"{name} takes positions first: a layer that is cut takes samples first; use batch_first=True")
    known = nn.Linear | ConvNd | nn.Embedding | nn.EmbeddingBag | NormBase | nn.RNNBase | nn.MultiheadAttention
    is_known = isinstance(module, known) or type(module).__name__ == LOCAL
    if cut and any(True for _ in module.parameters()) and (not is_known or _mixes(module)):
        raise PlanError(f"{name} cannot be cut by its features: only its samples can; use sample in its split")


def _mixes(module: nn.Module) -> bool:
    """Whether a setting makes something of all features, or of all rows."""
    if isinstance(module, nn.MultiheadAttention):
        return module.bias_k is not None or module.add_zero_attn
    return getattr(module, "max_norm", None) is not None or getattr(module, "scale_grad_by_freq", False) is True
