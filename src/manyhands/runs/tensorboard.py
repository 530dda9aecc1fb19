"""TensorBoard: a run's curves and its order as event files, written while it trains or afterwards."""

import platform
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from manyhands.errors import MissingPackage
from manyhands.files import make_folder, storage_errors
from manyhands.progress import say
from manyhands.runs import run_folder

FOLDER = "tensorboard"  # of a run
TAGS = {
    "loss": "train/loss",
    "lr": "train/lr",
    "ms": "train/ms",
    "noise_scale": "train/noise_scale",
    "val_loss": "validation/loss",
    "val_accuracy": "validation/accuracy",
    "averaged_val_loss": "validation/averaged loss",
    "averaged_val_accuracy": "validation/averaged accuracy",
    "test_loss": "test/loss",
    "test_accuracy": "test/accuracy",
}
ORDER = "order"  # the tag of the text
PREFIX = "events.out.tfevents."  # by which TensorBoard knows its files; it reads them in the order of their names


def check() -> None:
    """Refuse where the package is not installed."""
    if find_spec("tensorboard") is None:
        raise MissingPackage("event files need the package tensorboard: pip install 'manyhands[tensorboard]'")


class Events:
    """One event file, open.

    The records are TensorBoard's own, through its RecordWriter. Its EventFileWriter would do the same in a thread,
    which takes the interpreter from the training and shows a full disk as a traceback, and would import TensorFlow
    wherever that is installed.
    """

    def __init__(self, path: Path) -> None:
        check()
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.record_writer import RecordWriter

        self.path, self.event, self.summary = path, Event, Summary
        make_folder(path.parent)
        with storage_errors(path):
            self.file = path.open("wb")
        self.writer = RecordWriter(self.file)
        self._write(file_version="brain.Event:2")

    def forget_from(self, step: int) -> None:
        """Have readers drop what earlier files of the folder say of this step and of later ones."""
        from tensorboard.compat.proto.event_pb2 import SessionLog

        self._write(step=step, session_log=SessionLog(status=SessionLog.START))

    def order(self, record: Mapping[str, Any]) -> None:
        """What run.json orders, as a text and as hyperparameters."""
        from tensorboard.compat.proto.tensor_pb2 import TensorProto
        from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
        from tensorboard.compat.proto.types_pb2 import DT_STRING
        from tensorboard.plugins.hparams.summary_v2 import hparams_pb
        from tensorboard.plugins.text.metadata import create_summary_metadata

        order = flat(record)
        lines = "\n".join(f"    {key} = {value}" for key, value in order.items())  # indented: code in Markdown
        text = TensorProto(dtype=DT_STRING, string_val=[lines.encode()], tensor_shape=TensorShapeProto())
        told = self.summary.Value(tag=ORDER, tensor=text, metadata=create_summary_metadata(ORDER, ""))
        self._write(step=0, summary=self.summary(value=[told]))
        self._write(step=0, summary=hparams_pb(order))

    def record(self, record: Mapping[str, Any], at: float | None = None) -> None:
        """A line of metrics.jsonl; `at` is when it was true, in seconds since 1970, and now if not said."""
        numbers = {tag: record[key] for key, tag in TAGS.items() if isinstance(record.get(key), int | float)}
        values = [self.summary.Value(tag=tag, simple_value=number) for tag, number in numbers.items()]
        self._write(at, step=record["step"], summary=self.summary(value=values))

    def _write(self, at: float | None = None, **content: Any) -> None:
        event = self.event(wall_time=time.time() if at is None else at, **content)
        with storage_errors(self.path):
            self.writer.write(event.SerializeToString())

    def flush(self) -> None:
        with storage_errors(self.path):
            self.file.flush()

    def close(self) -> None:
        with storage_errors(self.path):
            self.file.close()


def flat(record: Mapping[str, Any]) -> dict[str, bool | int | float | str]:
    """The order of a run by dotted keys; what it leaves to a default is left out."""
    config = {
        f"{section}.{key}": ", ".join(map(str, value)) if isinstance(value, list) else value
        for section, values in (record.get("config") or {}).items()
        for key, value in (values or {}).items()
    }
    facts = {"plan": record.get("plan_words"), "machine": record.get("machine_words"), **config}
    return {key: value for key, value in facts.items() if isinstance(value, bool | int | float | str) and value != ""}


def begin(run: run_folder.Run, step: int) -> Events:
    """The event file of a training that begins, or goes on, after `step`."""
    folder = run.folder / FOLDER
    events = Events(folder / f"{PREFIX}{time.time_ns()}.{platform.node()}")
    events.forget_from(step + 1 if step else 0)
    if step == 0:
        events.order(run.record)
    say(f"curves: tensorboard --logdir {folder}")
    return events
