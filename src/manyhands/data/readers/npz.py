"""NPZ: arrays of numpy, images or tables, with or without a test part."""

import zipfile
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray

from manyhands.data.schema import DataOptions, Schema
from manyhands.data.source import TEST, TRAIN, VALIDATION, Content, Source, arranged, in_chunks, reading
from manyhands.data.tabular import fitted_numbers, standard
from manyhands.errors import DataError, few

# What numpy's reader of headers, a part of Python's own parser, ends with where a header is none.
HEADERS = (SyntaxError, TokenError, TypeError, OverflowError, RecursionError)
PAIRS = (
    ("x_train", "y_train", TRAIN),
    ("x", "y", TRAIN),
    ("inputs", "labels", TRAIN),
    ("x_val", "y_val", VALIDATION),
    ("x_test", "y_test", TEST),
)


def matches(path: Path) -> bool:
    """A file whose name ends with .npz."""
    return path.suffix == ".npz"


def source(name: str, path: Path, options: DataOptions) -> Source:
    """The arrays of one file."""
    return Source(name, str(path), (path,), (), lambda: _read(name, path))


def _read(name: str, path: Path) -> Content:
    try:
        with reading(path):
            _check_size(path)
            with np.load(path, allow_pickle=False) as file:
                arrays = {key: file[key] for key in file.files}
    except (ValueError, MemoryError, zipfile.BadZipFile, NotImplementedError, *HEADERS) as error:
        raise DataError(f"cannot read {path} ({error}): expected arrays of numbers that numpy.savez wrote") from error
    pairs = [(x, y, part) for x, y, part in PAIRS if x in arrays and y in arrays]
    found = [(arrays[x], arrays[y], part) for x, y, part in pairs]
    if [part for _, _, part in found].count(TRAIN) != 1:
        raise DataError(f"{path} holds {few(arrays)}: expected x_train and y_train, x and y, or inputs and labels")
    for key, _, _ in pairs:
        _check_values(path, key, arrays[key])
    for x, y, _ in found:
        if len(x) != y.size or not y.size or x.shape[1:] != found[0][0].shape[1:]:
            raise DataError(f"{path} has inputs {x.shape} and labels {y.shape}: expected one label for each sample")
    inputs = np.concatenate([x for x, _, _ in found])
    raw = np.concatenate([y.ravel() for _, y, _ in found])
    parts = np.repeat([part for _, _, part in found], [y.size for _, y, _ in found])
    classes, labels = _labels(path, raw, parts)
    order, counts = arranged(name, labels, parts)
    rows = inputs[order]
    if rows.ndim == 2:
        return _table(name, rows, classes, labels[order], counts)
    pictures = _pictures(path, rows)
    shape = (pictures.shape[3], *pictures.shape[1:3])
    return Content(Schema(name, "image", shape, classes), labels[order], counts, in_chunks(pictures))


def _check_size(path: Path) -> None:
    """Refuse what would not fit into memory: packed zeros take none in the file."""
    with zipfile.ZipFile(path) as archive:
        size = sum(each.file_size for each in archive.infolist())
    if size > psutil.virtual_memory().available:
        raise DataError(f"{path} holds {size:,} bytes unpacked, more than there is memory: use a folder of files")


def _check_values(path: Path, key: str, values: NDArray[Any]) -> None:
    """Finite numbers; in a table NaN is a missing value, as long as some are there."""
    if values.dtype.kind not in "fiub":
        raise DataError(f"{path} has {key} of type {values.dtype}: numbers are needed")
    wrong = values.size - np.count_nonzero(np.isfinite(values))
    missing = np.count_nonzero(np.isnan(values)) if wrong and values.ndim == 2 else 0
    if wrong > missing or (wrong and wrong == values.size):
        raise DataError(
            f"{path}: {wrong:,} of {values.size:,} values in {key} are NaN or infinite: repair them or leave their "
            "samples out; a table may have some NaN, for missing values"
        )


def _labels(path: Path, raw: NDArray[Any], parts: NDArray[np.int64]) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    if raw.dtype.kind not in "iubU":
        raise DataError(f"{path} has labels of type {raw.dtype}: whole numbers or names are needed")
    classes = np.unique(raw[parts == TRAIN])
    if unknown := set(raw.tolist()) - set(classes.tolist()):
        raise DataError(f"{path} has the label {unknown.pop()} outside the training part alone: add training samples")
    if len(classes) < 2:
        raise DataError(f"{path} has the labels {classes.tolist()}: at least two classes are needed")
    return tuple(map(str, classes)), np.searchsorted(classes, raw).astype(np.int64)


def _table(
    name: str,
    rows: NDArray[Any],
    classes: tuple[str, ...],
    labels: NDArray[np.int64],
    counts: tuple[int, int, int],
) -> Content:
    values = rows.astype(np.float64)
    columns = tuple(fitted_numbers(f"x{each}", values[: counts[0], each]) for each in range(values.shape[1]))
    features = np.concatenate([standard(column, values[:, each]) for each, column in enumerate(columns)], axis=1)
    schema = Schema(name, "table", features.shape[1:], classes, columns=columns, target="y")
    return Content(schema, labels, counts, in_chunks(features))


def _pictures(path: Path, rows: NDArray[Any]) -> NDArray[np.uint8]:
    """Images as bytes, channels last; from 0..1 if no value is above 1."""
    if rows.ndim == 3:
        rows = rows[..., None]
    if rows.ndim != 4 or not {rows.shape[1], rows.shape[3]} & {1, 3}:
        raise DataError(
            f"{path} has samples of shape {rows.shape[1:]}: expected (features), (height, width), "
            "(height, width, 1 or 3) or (1 or 3, height, width)"
        )
    if rows.shape[3] not in (1, 3):
        rows = rows.transpose(0, 2, 3, 1)
    if rows.dtype == np.uint8:
        return rows
    scaled = rows * (255.0 if rows.max() <= 1 else 1.0)
    if not (scaled.min() >= 0 and scaled.max() <= 255):
        raise DataError(f"{path} has pixels from {rows.min()} to {rows.max()}: 0 to 1 or 0 to 255 are allowed")
    return scaled.round().astype(np.uint8)
