"""Critical batch: the critical batch that an earlier tuning found for the same model and data."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from manyhands.config import Config
from manyhands.errors import UNREADABLE
from manyhands.files import home, sha256, write_json


def keep(config: Config, critical_batch: float) -> None:
    write_json(_place(config), {"critical_batch": critical_batch})


def recall(config: Config) -> float | None:
    """What was kept, if it can be read."""
    try:
        return float(json.loads(_place(config).read_text())["critical_batch"])
    except UNREADABLE:
        return None


def _place(config: Config) -> Path:
    told, file = config.to_json(), Path(config.model.name.rpartition(":")[0])
    content = sha256(file) if file.suffix == ".py" and file.is_file() else None  # an edited model is another model
    facts = json.dumps([told["model"], told["data"], content], sort_keys=True)
    return home() / "tuned" / f"{hashlib.sha256(facts.encode()).hexdigest()[:32]}.json"


def critical_batch(curve: Sequence[tuple[int, float, float | None]], target: float) -> float | None:
    """The median over steps, up to the target, of the noise scale; `curve`: steps, accuracies, scales."""
    weights: list[tuple[float, int]] = []
    before = 0
    for step, accuracy, scale in curve:
        if scale is not None:
            weights.append((scale, step - before))
        before = step
        if accuracy >= target:
            break
    left = sum(weight for _, weight in weights) / 2
    for scale, weight in sorted(weights):
        left -= weight
        if left <= 0:
            return scale
    return None
