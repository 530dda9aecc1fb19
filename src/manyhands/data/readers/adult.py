"""Adult: the census table, as one CSV of training then test rows or as the two files that UCI ships."""

from pathlib import Path

import numpy as np

from manyhands.data.readers import csv_table
from manyhands.data.schema import DataOptions
from manyhands.data.source import TEST, TRAIN, Content, Source
from manyhands.errors import DataError

TARGET = "income"
TRAINING_ROWS = 32_561
COLUMNS = (
    *("age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation"),
    *("relationship", "race", "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country"),
    TARGET,
)


def matches(path: Path) -> bool:
    """Whether a folder holds the set in one of its forms."""
    return bool(_files(path))


def source(name: str, path: Path, options: DataOptions) -> Source:
    """The set in a folder; another target column may be asked for."""
    files, target = _files(path), options.target or TARGET
    return Source(name, str(path), files, (target,), lambda: _read(name, path, files, target))


def _files(folder: Path) -> tuple[Path, ...]:
    for names in (("adult.csv",), ("adult.data", "adult.test")):
        for ending in (".gz", ""):
            files = tuple(folder / f"{name}{ending}" for name in names)
            if all(file.exists() for file in files):
                return files
    return ()


def _read(name: str, path: Path, files: tuple[Path, ...], target: str) -> Content:
    tables = [csv_table.read_csv(file, () if len(files) == 1 else COLUMNS) for file in files]
    if any(TARGET not in each for each in tables):
        raise DataError(
            f"{path} has no column {TARGET}: get the set's own file, or give the CSV's path and data.target"
        )
    rows = {key: [field for each in tables for field in each[key]] for key in tables[0]}
    training = TRAINING_ROWS if len(files) == 1 else len(tables[0][TARGET])
    total = len(rows[TARGET])
    if total <= training:
        raise DataError(f"{path} has {total:,} rows: more than the {training:,} training rows are needed")
    rows[TARGET] = [field.rstrip(".") for field in rows[TARGET]]  # the full stop is in UCI's test file alone
    parts = np.repeat([TRAIN, TEST], [training, total - training])
    return csv_table.content(name, str(path), rows, target, parts)
