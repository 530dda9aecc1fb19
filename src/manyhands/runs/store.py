"""Store: run folders on disk, read and written without torch.

RUN/
  run.json        status, config, plan, machine, versions, ranks, layers, result
  data.json       the schema of its data: enough to predict from a new file
  metrics.jsonl   a line a step {step, loss, lr, ms}, a line a validation {step, epoch, val_loss, …}
  timeline.json   Chrome trace
  log.txt         what was said
  checkpoints/
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from manyhands.errors import InputError, StorageError
from manyhands.files import home, make_folder, storage_errors, write_json, write_text

STATUSES = ("running", "finished", "failed", "interrupted")


@dataclass(frozen=True)
class Run:
    """A run folder and what its run.json said when it was read."""

    folder: Path
    record: dict[str, Any]

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def status(self) -> str:
        return str(self.record["status"])

    @property
    def plan(self) -> str:
        """The words of its plan."""
        return str(self.record["plan_words"])

    @property
    def result(self) -> dict[str, Any] | None:
        """What `train --json` printed; None until it has finished."""
        result: dict[str, Any] | None = self.record.get("result")
        return result

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    def metrics(self) -> Iterator[dict[str, Any]]:
        """Every whole line of metrics.jsonl; a last line cut off by a kill is passed over."""
        try:
            lines = (self.folder / "metrics.jsonl").read_text().splitlines()
        except FileNotFoundError:
            return
        for line in lines:
            try:
                yield json.loads(line)
            except json.JSONDecodeError:
                continue

    def update(self, **values: Any) -> "Run":
        """Change run.json and give the run as it is now."""
        record = {**self.record, **values, "updated": now()}
        write_json(self.folder / "run.json", record)
        return Run(self.folder, record)


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")


def new_folder(wanted: Path | None, label: str) -> Path:
    """An empty folder for a run: the wanted one, or a new one under the home folder named by time and label."""
    if wanted is None:
        parent = make_folder(home() / "runs")
        stem = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{label}"
        for number in range(1000):
            folder = parent / (stem if number == 0 else f"{stem}-{number + 1}")
            try:
                with storage_errors(folder):
                    folder.mkdir(exist_ok=False)
                return folder
            except StorageError:
                if not folder.exists():
                    raise
    assert wanted is not None
    if wanted.is_dir() and any(wanted.iterdir()):
        raise StorageError(
            f"the folder {wanted} exists and is not empty: choose another --out, or go on with --resume {wanted}"
        )
    return make_folder(wanted)


def create(folder: Path, record: dict[str, Any]) -> Run:
    """Begin a run in an empty folder."""
    run = Run(folder, {"format": 1, "status": "running", "created": now(), "result": None, **record})
    return run.update()


def load(folder: Path) -> Run:
    """Read a run; one clear line when it is none."""
    path = folder / "run.json"
    if not path.exists():
        raise InputError(f"{folder} is not a run: it has no run.json; `manyhands runs` lists those there are")
    try:
        record = json.loads(path.read_text())
        if not isinstance(record, dict) or record["status"] not in STATUSES or "plan_words" not in record:
            raise ValueError("keys are missing")
    except (ValueError, KeyError, OSError) as error:
        raise InputError(
            f"{path} cannot be read as a run ({error}): it was damaged or made by another program"
        ) from None
    return Run(folder, record)


def find(parent: Path) -> list[Run]:
    """Every readable run below a folder (itself included), oldest first."""
    runs = []
    for path in sorted({*parent.glob("run.json"), *parent.glob("*/run.json"), *parent.glob("*/*/run.json")}):
        try:
            runs.append(load(path.parent))
        except InputError:
            continue
    return sorted(runs, key=lambda run: str(run.record.get("created", "")))


def cut_metrics(run: Run, step: int) -> None:
    """Forget what came after `step`: a resumed run does it again."""
    lines = [json.dumps(each) for each in run.metrics() if each["step"] <= step]
    write_text(run.folder / "metrics.jsonl", "".join(f"{line}\n" for line in lines))
