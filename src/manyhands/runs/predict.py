"""Predict: class and probability for new files, from a run's best checkpoint."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from manyhands.data.encode import encode
from manyhands.data.normalize import Normalize
from manyhands.data.schema import Schema
from manyhands.engine import checkpoint
from manyhands.errors import DataError, InputError
from manyhands.runs import store
from manyhands.runs.config import with_values
from manyhands.runs.job import best_checkpoint, build_model
from manyhands.runs.run import order_of

BATCH = 256


def load_run(folder: Path) -> tuple[nn.Module, Schema]:
    """A run's model with its best weights, in evaluation mode on the host, and the schema of its data."""
    run = store.load(folder)
    path = run.folder / "data.json"
    try:
        schema = Schema.from_json(json.loads(path.read_text()))
    except DataError as error:
        raise InputError(f"{path}: {error}") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read ({error}): train the run again") from None
    config = order_of(run)
    # The checkpoint has every weight: what they were first taken from may be gone by now.
    plain = with_values(config, {"model.init_from": None, "model.freeze": ()})
    model = build_model(plain, schema)
    model.load_state_dict(checkpoint.load_model(best_checkpoint(run)))
    return model.eval(), schema


def predict(folder: Path, paths: Sequence[Path]) -> list[dict[str, Any]]:
    """A row for each image, line of text, or CSV row."""
    model, schema = load_run(folder)
    names, rows = encode(schema, paths)
    normalize = Normalize(schema, contiguous=True).eval()
    found = []
    for begin in range(0, len(names), BATCH):
        inputs = torch.from_numpy(rows[begin : begin + BATCH])
        for name, chances in zip(names[begin : begin + BATCH], _chances(model, normalize(inputs)), strict=True):
            best = int(chances.argmax())
            found.append({"file": name, "label": schema.classes[best], "probability": float(chances[best])})
    return found


def _chances(model: nn.Module, inputs: Tensor) -> Tensor:
    with torch.inference_mode():
        return torch.softmax(model(inputs).float(), dim=1)
