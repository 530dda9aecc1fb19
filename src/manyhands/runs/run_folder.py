"""Run folder: run folders on disk, read and written without torch.

RUN/
  run.json        status, config, plan, machine, versions, ranks, layers, result
  data.json       the schema of its data: enough to predict from a new file
  metrics.jsonl   a line a step {step, loss, lr, ms; noise_scale}, a line a validation {step, epoch, val_loss, …}
  timeline.json   Chrome trace
  log.txt         what was said
  tensorboard/    event files, where log.tensorboard says so
  .lock           held by the process that trains it
  checkpoints/
"""

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from manyhands.config import Config
from manyhands.config import from_table as config_from_table
from manyhands.errors import InputError, StorageError
from manyhands.files import home, make_folder, read, storage_errors, write_json
from manyhands.progress import say
from manyhands.runs.record_schema import Damaged, read_record

# What run folders, comparisons and studies are made of: nothing that a command writes elsewhere may take its place.
PARTS = ("run.json", "data.json", "metrics.jsonl", "timeline.json", "log.txt", ".lock")
FOLDERS = ("checkpoints", "tensorboard")
OF_SEVERAL = ("compare.json", "study.json", "sweep.json")
MOST_METRICS = 2_000_000_000  # bytes of metrics.jsonl: a hundred a step


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
        """Every whole line of metrics.jsonl; what is none, as a last line cut off by a kill, is passed over."""
        yield from records(self.metric_lines())

    def metric_lines(self) -> list[bytes]:
        """The lines as they lie there; none, and a word of why, where they cannot be read."""
        path = self.folder / "metrics.jsonl"
        if not os.path.lexists(path):
            return []
        try:
            return read(path, MOST_METRICS).splitlines()
        except InputError as error:
            say(f"{self.folder}: {error}")
            return []

    def update(self, **values: Any) -> "Run":
        """Change run.json and give the run as it is now."""
        record = {**self.record, **values, "updated": now()}
        write_json(self.folder / "run.json", record)
        return Run(self.folder, record)


def part_of_run(path: Path) -> Path | None:
    """The file or folder of a run (a comparison, a study) that a path is or lies in; None for any other."""
    path = Path(os.path.realpath(path))
    for inner, outer in zip((path, *path.parents), path.parents, strict=False):
        if inner.name in FOLDERS and (outer / "run.json").exists():
            return inner
    if path.name in PARTS and (path.parent / "run.json").exists():
        return path
    return path if path.name in OF_SEVERAL and path.exists() else None


def records(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """What lines of metrics.jsonl hold; those that hold no record are passed over."""
    for line in lines:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict):
            yield record


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
        more = f", or go on with --resume {wanted}" if (wanted / "run.json").exists() else ""
        raise StorageError(f"the folder {wanted} exists and is not empty: choose another --out{more}")
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
        return Run(folder, read_record(path))
    except Damaged as error:
        raise InputError(
            f"{path} cannot be read as a run ({error}): it was damaged or made by another program"
        ) from None


def find(parent: Path) -> list[Run]:
    """Every readable run below a folder (itself included), oldest first."""
    return find_all(parent)[0]


def find_all(parent: Path) -> tuple[list[Run], list[tuple[Path, str]]]:
    """As `find`, and the folders of the damaged runs, each with what is wrong with it."""
    runs: list[Run] = []
    damaged: list[tuple[Path, str]] = []
    for path in found_below(parent, "run.json"):
        try:
            runs.append(Run(path.parent, read_record(path)))
        except Damaged as error:
            damaged.append((path.parent, str(error)))
    return sorted(runs, key=lambda run: str(run.record.get("created", ""))), damaged


def found_below(parent: Path, name: str) -> list[Path]:
    """Files of a name in a folder and two below; a link to a folder leads out of it and is not followed."""
    found, folders = [], [parent]
    for _ in range(3):
        found += [each / name for each in folders if os.path.lexists(each / name)]
        folders = [
            Path(entry.path) for each in folders for entry in _entries(each) if entry.is_dir(follow_symlinks=False)
        ]
    return sorted(found)


def _entries(folder: Path) -> list["os.DirEntry[str]"]:
    with suppress(OSError), os.scandir(folder) as entries:
        return list(entries)
    return []


def order_of(run: Run) -> Config:
    if "config" not in run.record:
        raise InputError(f"{run.folder / 'run.json'} has no config: it was damaged or made by another program")
    return config_from_table(run.record["config"], str(run.folder / "run.json"))
