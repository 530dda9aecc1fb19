"""Encode: new files as the inputs of a model that was trained on a data set."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyhands.data import tabular, vocabulary
from manyhands.data.image_file import decoded
from manyhands.data.readers.csv_table import read_csv
from manyhands.data.readers.tweeteval import lines
from manyhands.data.schema import Kind, Schema
from manyhands.data.source import reading
from manyhands.errors import DataError, few


def encode(schema: Schema, paths: Sequence[Path]) -> tuple[list[str], NDArray[Any]]:
    """A label for each row and the rows as the store would hold them.

    An image is a row, labelled with its path; each line of a text file and each row of a CSV is one,
    labelled path:number.
    """
    if not paths:
        raise DataError(f"no files to predict: name at least one file of the kind '{schema.kind}'")
    rows = [_ENCODERS[schema.kind](schema, path) for path in paths]
    labels = [
        str(path) if schema.kind == "image" else f"{path}:{number}"
        for path, inputs in zip(paths, rows, strict=True)
        for number in range(1, len(inputs) + 1)
    ]
    return labels, np.concatenate(rows)


def _image(schema: Schema, path: Path) -> NDArray[Any]:
    with reading(path):
        content = path.read_bytes()
    return decoded(str(path), content, schema.shape)[None]


def _text(schema: Schema, path: Path) -> NDArray[Any]:
    found = lines(path)
    if not found:
        raise DataError(f"{path} has no lines: put a text on each")
    return vocabulary.ids([vocabulary.tokens(text) for text in found], schema.vocabulary, schema.shape[0])


def _table(schema: Schema, path: Path) -> NDArray[Any]:
    table = read_csv(path)
    if lacking := [column.name for column in schema.columns if column.name not in table]:
        raise DataError(f"{path} lacks the columns {few(lacking)}: it has {few(table)}")
    return tabular.features(schema.columns, table, str(path))


_ENCODERS: dict[Kind, Callable[[Schema, Path], NDArray[Any]]] = {
    "image": _image,
    "text": _text,
    "table": _table,
}
