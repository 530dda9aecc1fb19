"""The transformer encoder as a classifier, of tokens or of image patches."""

from collections import OrderedDict

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from manyhands.models.masking import PADDING, MeanOverReal, RealPositions
from manyhands.models.sizes import remaining, scaled, window

HEADS = 4
HEAD_SIZE = 32
WIDEN = 2


class Heads(nn.Module):
    """Scaled dot-product attention of each head; as many heads as HEAD_SIZE fits into what it is given."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor, real: Tensor | None = None) -> Tensor:
        # (B, L, heads · size) → (B, heads, L, size); the number is left open, so that a rank may hold a part.
        q, k, v = (torch.unflatten(each, -1, (-1, HEAD_SIZE)).transpose(1, 2) for each in (query, key, value))
        mask = None if real is None else real[:, None, None, :]
        return scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2)


class Attention(nn.Module):
    """Self-attention with its four projections as layers of their own."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.query, self.key, self.value = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.heads = Heads()
        self.out = nn.Linear(dim, dim)

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        mixed: Tensor = self.out(self.heads(self.query(x), self.key(x), self.value(x), real))
        return mixed


class EncoderLayer(nn.Module):
    """A pre-norm layer: x + attention(norm(x)), then x + dense(norm(x))."""

    def __init__(self, dim: int, dropout: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attention = Attention(dim)
        self.dropout1 = nn.Dropout(dropout)
        self.norm2 = nn.LayerNorm(dim)
        dense: OrderedDict[str, nn.Module] = OrderedDict()
        dense["wide"] = nn.Linear(dim, WIDEN * dim)
        dense["act"] = nn.GELU()
        dense["narrow"] = nn.Linear(WIDEN * dim, dim)
        dense["dropout"] = nn.Dropout(dropout)
        self.dense = nn.Sequential(dense)

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        x = x + self.dropout1(self.attention(self.norm1(x), real))
        added: Tensor = x + self.dense(self.norm2(x))
        return added


class Positions(nn.Module):
    """Adds a learned vector to each position."""

    def __init__(self, length: int, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(length, dim) * 0.02)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.weight


class Patches(nn.Module):
    """An image as a sequence of patches, each projected by a strided convolution."""

    def __init__(self, channels: int, dim: int, patch: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, dim, patch, stride=patch)

    def forward(self, image: Tensor) -> Tensor:
        sequence: Tensor = self.conv(image).flatten(2).transpose(1, 2)
        return sequence


class TextTransformer(nn.Module):
    """Tokens → encoder layers that do not look at padding → the mean over what is real → classes."""

    def __init__(self, vocabulary: int, length: int, dim: int, depth: int, dropout: float, classes: int) -> None:
        super().__init__()
        self.real = RealPositions()
        self.embedding = nn.Embedding(vocabulary, dim, padding_idx=PADDING)
        self.positions = Positions(length, dim)
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList(EncoderLayer(dim, dropout) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)
        self.pool = MeanOverReal()
        self.output = nn.Linear(dim, classes)
        with torch.no_grad():
            self.embedding.weight.mul_(0.1)

    def forward(self, ids: Tensor) -> Tensor:
        real = self.real(ids)
        x = self.dropout(self.positions(self.embedding(ids)))
        for layer in self.layers:
            x = layer(x, real)
        scores: Tensor = self.output(self.pool(self.norm(x), real))
        return scores


class MeanOverPatches(nn.Module):
    """The mean over the sequence."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(dim=1)


def transformer(
    classes: int,
    shape: tuple[int, ...],
    vocabulary: int | None = None,
    *,
    width: float = 1.0,
    depth: int = 2,
    dropout: float = 0.1,
) -> nn.Module:
    """`depth` encoder layers of 4 × `width` heads (whole ones), 32 units each.

    Images are cut into patches of 4x4; 7x7 where that divides both sides, as of 28x28; 16x16 above 64 pixels.
    """
    dim = HEAD_SIZE * scaled(HEADS, width)
    if vocabulary is not None:
        return TextTransformer(vocabulary, shape[0], dim, depth, dropout, classes)
    channels, height, breadth = shape
    patch = _patch(height, breadth)
    length = remaining("transformer", shape, window((height, breadth), patch, stride=patch), least=patch)
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    layers["patches"] = Patches(channels, dim, patch)
    layers["positions"] = Positions(length, dim)
    layers["dropout"] = nn.Dropout(dropout)
    for index in range(1, depth + 1):
        layers[f"layer{index}"] = EncoderLayer(dim, dropout)
    layers["norm"] = nn.LayerNorm(dim)
    layers["pool"] = MeanOverPatches()
    layers["output"] = nn.Linear(dim, classes)
    return nn.Sequential(layers)


def _patch(height: int, breadth: int) -> int:
    if min(height, breadth) > 64:
        return 16
    return 7 if height % 7 == 0 and breadth % 7 == 0 else 4
