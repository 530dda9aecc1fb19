"""Embedding: an embedding of which each rank has some rows, for some words of the vocabulary."""

from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn.functional import embedding

from manyhands.plan.tensor_layout import Span


@dataclass(frozen=True)
class Table:
    """The module, whose weight are this rank's rows; what it gives, all ranks add up."""

    module: nn.Embedding
    rows: Span

    def __call__(self, ids: Tensor) -> Tensor:
        """The rows that are here, zeros for the others."""
        rows, padding = self.rows, self.module.padding_idx
        here = (ids >= rows.begin) & (ids < rows.end)
        own = padding - rows.begin if padding is not None and rows.begin <= padding < rows.end else None
        found = embedding((ids - rows.begin).where(here, 0), self.module.weight, own)
        return found.masked_fill(~here.unsqueeze(-1), 0)
