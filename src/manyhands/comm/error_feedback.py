"""Error feedback: what a rank has not sent yet of its gradients, kept by parameter and laid out as DDP's buckets are.

    first step          ┌────────────── a b c d ──────────────┐   one bucket
    from the second on  ┌──── d c ────┐ ┌──── b a ────┐           in the order in which gradients come

When DDP rebuilds its buckets, and when a training is resumed, residuals move to their parameters' new places.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from manyhands.compat import GradBucket


class ErrorFeedback:
    """One rank's, empty until a bucket asks."""

    def __init__(self, names: Mapping[Tensor, str]) -> None:
        self.names = names  # of the parameters
        self.left: dict[str, Tensor] = {}  # in the shape of the parameters: views of the rows, or what was loaded
        self.rows: dict[tuple[str, ...], Tensor] = {}

    def row(self, bucket: GradBucket) -> Tensor:
        """The residuals of a bucket, element beside element of its buffer."""
        names = tuple(self.names[parameter] for parameter in bucket.parameters())
        if names not in self.rows:
            # A row that shares a parameter with this one is of an older layout.
            self.rows = {key: row for key, row in self.rows.items() if not set(key) & set(names)}
            self.rows[names] = self._lay_out(names, bucket)
        return self.rows[names]

    def _lay_out(self, names: tuple[str, ...], bucket: GradBucket) -> Tensor:
        buffer = bucket.buffer()
        # What half precision drops would be lost again in a residual of half precision.
        row = torch.zeros_like(buffer, dtype=torch.promote_types(buffer.dtype, torch.float32))
        start = 0
        for name, parameter in zip(names, bucket.parameters(), strict=True):
            view = row.as_strided(parameter.shape, strides(parameter), start)
            if name in self.left:
                view.copy_(self.left[name])
            self.left[name] = view
            start += parameter.numel()
        return row


def strides(parameter: Tensor) -> tuple[int, ...]:
    """In what order a parameter's elements lie in a bucket: as in the parameter itself, without gaps."""
    return torch.empty_like(parameter, device="meta").stride()


def split(row: Tensor, bucket: GradBucket) -> list[Tensor]:
    """A bucket's row as one row a parameter."""
    return list(torch.split(row, [parameter.numel() for parameter in bucket.parameters()]))
