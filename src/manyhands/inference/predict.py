"""Predict: class and probability for new files, from a run's best checkpoint or from the mean of its weights."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from manyhands.data.encode import encode
from manyhands.data.normalize import Normalize
from manyhands.inference.load import load_run

BATCH = 256


def predict(
    folder: Path, paths: Sequence[Path], averaged: bool = False, *, changed_code: bool = False
) -> list[dict[str, Any]]:
    """A row for each image, line of text, or CSV row."""
    model, schema = load_run(folder, averaged, changed_code=changed_code)
    names, rows = encode(schema, paths)
    normalize = Normalize(schema, contiguous=True).eval()
    found = []
    for begin in range(0, len(names), BATCH):
        inputs = torch.from_numpy(rows[begin : begin + BATCH])
        for name, each in zip(names[begin : begin + BATCH], chances(model, normalize(inputs)), strict=True):
            best = int(each.argmax())
            found.append({"file": name, "label": schema.classes[best], "probability": float(each[best])})
    return found


def chances(model: nn.Module, inputs: Tensor) -> Tensor:
    """The probability of each class."""
    with torch.inference_mode():
        return torch.softmax(model(inputs).float(), dim=1)
