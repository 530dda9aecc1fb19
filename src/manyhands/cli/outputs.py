"""Outputs: the files and folders that a command writes, checked before any work; none may replace what is read."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from manyhands.config import Config
from manyhands.data.catalog import KNOWN, find
from manyhands.errors import InputError, StorageError
from manyhands.files import check_output, identity
from manyhands.runs import run_folder
from manyhands.runs.run_folder import order_of


def file_name(text: str | Path) -> Path:
    """A path for a file; pathlib would drop the slash by which a folder is meant."""
    path = Path(text)
    if str(text).endswith("/") or path.name in ("", ".."):
        raise StorageError(f"{text} is a folder: choose the name of a file")
    return path


def check(outputs: Mapping[str, Path | None], inputs: Iterable[Path] = (), folder: Path | None = None) -> None:
    """Refuse, by its option, an output that cannot be written, is another's, or is an input; and a run's own folder."""
    read, written = list(inputs), dict[object, str]()
    for option, path in outputs.items():
        if path is None:
            continue
        check_output(path)
        if (part := run_folder.part_of_run(path)) is not None:
            raise InputError(f"{option} {path}: {part} is a part of a run: choose another name")
        if path.exists() and any(_is_in(path, each) for each in read):
            raise InputError(f"{option} {path}: this command reads that file: choose another name")
        if (what := identity(path)) in written:
            raise InputError(f"{path} is named twice, by {written[what]} and {option}: give each output its own name")
        written[what] = option
    if folder is not None and (part := run_folder.part_of_run(folder)) is not None:
        raise InputError(f"{folder}: {part} is a part of a run: choose another folder")


def inputs_of(config: Config, *others: Path | str | None) -> list[Path]:
    """What a config has a command read: data, the model's source, first weights; and, of `others`, what is a path."""
    model, _, _ = config.model.name.rpartition(":")
    entry = KNOWN.get(config.data.name)
    data = find(entry) if entry else config.data.name
    named = (model, data, config.model.init_from, *(each for each in others if each and Path(each).is_file()))
    return [path for each in named if each and (path := Path(each).expanduser()).exists()]


def inputs_of_runs(folders: Iterable[Path]) -> list[Path]:
    """The same for runs; their own folders are guarded by what a run is made of."""
    return [path for folder in folders for path in inputs_of(order_of(run_folder.load(folder)))]


def _is_in(path: Path, read: Path) -> bool:
    """Whether an existing file is one that is read, or lies in a folder that is: new names there are free."""
    if read.is_dir():
        return Path(os.path.realpath(read)) in Path(os.path.realpath(path)).parents
    return identity(path) == identity(read)
