"""Metrics writer: what the loop tells of its steps, written down while it runs."""

import json
import os
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from manyhands.config import Config
from manyhands.files import storage_errors
from manyhands.runs import run_folder, tensorboard

FLUSH_SECONDS = 0.5  # often enough for a page that watches


class Metrics:
    """Appends records to metrics.jsonl, and to TensorBoard's event files where they are wanted."""

    def __init__(self, path: Path, events: tensorboard.Events | None = None) -> None:
        self.path, self.events, self.flushed = path, events, 0.0
        with storage_errors(path):
            self.file = path.open("a")

    def __call__(self, record: dict[str, Any]) -> None:
        with storage_errors(self.path):
            self.file.write(json.dumps(record) + "\n")
        if self.events:
            self.events.record(record)
        if time.monotonic() - self.flushed > FLUSH_SECONDS:
            self.flush()

    def tested(self, step: int, loss: float, accuracy: float) -> None:
        """The score of the test part, which is part of the result and for TensorBoard alone a metric."""
        if self.events:
            self.events.record({"step": step, "test_loss": loss, "test_accuracy": accuracy})

    def flush(self) -> None:
        with storage_errors(self.path):
            self.file.flush()
        if self.events:
            self.events.flush()
        self.flushed = time.monotonic()

    def __enter__(self) -> "Metrics":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            with storage_errors(self.path):
                self.file.close()
        finally:
            if self.events:
                self.events.close()


def metrics_of(run: run_folder.Run, config: Config, leads: bool, step: int) -> Metrics:
    """Where a rank's records go after `step`, at which it begins: only the leader's are kept."""
    if not leads:
        return Metrics(Path(os.devnull))
    events = tensorboard.begin(run, step) if config.log.tensorboard else None
    return Metrics(run.folder / "metrics.jsonl", events)
