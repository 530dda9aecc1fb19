"""Recurrent text classifiers, and the bag of words that they must beat."""

from collections import OrderedDict

import torch
from torch import Tensor, nn

from manyhands.errors import ModelError, choices
from manyhands.models.masking import PADDING, MaxOverReal, MeanOverReal, RealPositions
from manyhands.models.sizes import scaled

UNITS = 128
RECURRENT: dict[str, type[nn.RNN | nn.GRU | nn.LSTM]] = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}
CELLS = (*RECURRENT, "bag")


class RecurrentText(nn.Module):
    """Embedding → recurrent layers → the largest of each feature over the real positions → classes.

    Positions are masked after the recurrence, not packed before it: packing needs lengths on the host.
    """

    def __init__(self, vocabulary: int, units: int, cell: str, depth: int, dropout: float, classes: int) -> None:
        super().__init__()
        self.real = RealPositions()
        self.embedding = _embedding(vocabulary, units)
        self.dropout1 = nn.Dropout(dropout)
        between = dropout if depth > 1 else 0.0
        self.recurrent = RECURRENT[cell](units, units, depth, batch_first=True, dropout=between)
        self.pool = MaxOverReal()
        self.dropout2 = nn.Dropout(dropout)
        self.output = nn.Linear(units, classes)

    def forward(self, ids: Tensor) -> Tensor:
        states = self.recurrent(self.dropout1(self.embedding(ids)))[0]
        scores: Tensor = self.output(self.dropout2(self.pool(states, self.real(ids))))
        return scores


class BagText(nn.Module):
    """The mean of the embeddings → dense layers → classes."""

    def __init__(self, vocabulary: int, units: int, depth: int, dropout: float, classes: int) -> None:
        super().__init__()
        self.real = RealPositions()
        self.embedding = _embedding(vocabulary, units)
        self.pool = MeanOverReal()
        dense: OrderedDict[str, nn.Module] = OrderedDict()
        for index in range(1, depth):
            dense[f"dense{index}"] = nn.Linear(units, units)
            dense[f"act{index}"] = nn.ReLU()
        dense["dropout"] = nn.Dropout(dropout)
        dense["output"] = nn.Linear(units, classes)
        self.dense = nn.Sequential(dense)

    def forward(self, ids: Tensor) -> Tensor:
        scores: Tensor = self.dense(self.pool(self.embedding(ids), self.real(ids)))
        return scores


def text(
    classes: int,
    shape: tuple[int, ...],
    vocabulary: int | None = None,
    *,
    width: float = 1.0,
    depth: int = 1,
    dropout: float = 0.3,
    cell: str = "gru",
) -> nn.Module:
    """128 × `width` units and `depth` recurrent layers (of a bag: dense layers, the output among them)."""
    assert vocabulary is not None
    units = scaled(UNITS, width)
    if cell == "bag":
        return BagText(vocabulary, units, depth, dropout, classes)
    if cell not in RECURRENT:
        raise ModelError(f"unknown cell '{cell}': {choices(cell, CELLS)}")
    return RecurrentText(vocabulary, units, cell, depth, dropout, classes)


def _embedding(vocabulary: int, units: int) -> nn.Embedding:
    embedding = nn.Embedding(vocabulary, units, padding_idx=PADDING)
    with torch.no_grad():
        embedding.weight.mul_(0.1)
    return embedding
