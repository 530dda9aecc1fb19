"""Run folders as a training leaves them, without the training."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from manyhands.runs import run_folder

MakeRun = Callable[..., run_folder.Run]

LAYERS = [
    {"name": "conv1", "kind": "Conv2d", "parameters": 320, "forward_ms": 4.0, "backward_ms": 10.0},
    {"name": "flatten", "kind": "Flatten", "parameters": 0, "forward_ms": 0.0, "backward_ms": 0.0},
    {"name": "dense", "kind": "Linear", "parameters": 1290, "forward_ms": 1.0, "backward_ms": 2.5},
]


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """A function that makes a run folder; `speed=None` makes one that failed."""

    def make(name: str, speed: float | None = 1000.0, accuracy: float = 0.98, **changes: Any) -> run_folder.Run:
        folder = tmp_path / name
        folder.mkdir()
        run = run_folder.create(folder, {**_order(), **changes})
        if speed is None:
            return run.update(status="failed", error=changes.get("error", "out of memory"))
        lines: list[dict[str, Any]] = []
        for step in range(1, 41):
            lines.append({"step": step, "loss": 2.3 * 0.95**step, "lr": 0.001, "ms": 256_000 / speed})
            if step % 20 == 0:
                lines.append({"step": step, "epoch": step // 20, "val_loss": 0.1, "val_accuracy": accuracy - 0.01})
        (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        train = 40 * 256 / speed
        seconds = {"setup": 2.0, "search": 0.5, "compile": 0.0, "train": train, "eval": 1.0, "total": train + 4.0}
        result = {"test_accuracy": accuracy, "samples_per_s": speed, "seconds": seconds}
        return run.update(status="finished", result=result)

    return make


def _order() -> dict[str, Any]:
    return {
        "config": {
            "model": {"name": "convnet"},
            "data": {"name": "digits"},
            "train": {"epochs": 2, "batch_size": 256},
        },
        "plan": {"axes": ["plain"], "precision": "fp32"},
        "plan_words": "plain,precision=fp32",
        "machine": {"system": "Linux"},
        "machine_words": "a CPU, 2 cores, 24 GiB",
        "versions": {"torch": "2.13.0"},
        "samples": {"train": 5120, "validation": 256, "test": 1000},
        "layers": LAYERS,
        "trials": [],
    }
