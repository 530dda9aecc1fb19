"""CSV table: a CSV with a header line, packed or not, and the column that holds the class."""

import csv
import gzip
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyhands.data import tabular
from manyhands.data.schema import DataOptions, Schema
from manyhands.data.source import TRAIN, Content, Source, arranged, reading, slices
from manyhands.errors import DataError, choices, few

MOST_CLASSES = 1000

Table = Mapping[str, list[str]]  # the cleaned fields of each column


def matches(path: Path) -> bool:
    """A file whose name ends with .csv, .tsv, .csv.gz or .tsv.gz."""
    return path.name.removesuffix(".gz").endswith((".csv", ".tsv"))


def source(name: str, path: Path, options: DataOptions) -> Source:
    """One CSV, whose target column the user names."""

    def read() -> Content:
        table = read_csv(path)
        if options.target is None:
            raise DataError(f"{path} needs a class column: say --set data.target=NAME with one of {few(table)}")
        rows = len(next(iter(table.values())))
        return content(name, str(path), table, options.target, np.full(rows, TRAIN))

    return Source(name, str(path), (path,), (options.target,), read)


def read_csv(path: Path, header: tuple[str, ...] = ()) -> Table:
    """The columns of a CSV, by its first line or by `header` where it has none."""
    opener: Any = gzip.open if path.suffix == ".gz" else open
    try:
        with reading(path), opener(path, "rt", encoding="utf-8-sig", newline="") as file:
            first = file.readline()
            file.seek(0)
            separator = max(",;\t", key=first.count)
            rows = [row for row in csv.reader(file, delimiter=separator, skipinitialspace=True) if row]
    except csv.Error as error:
        raise DataError(f"{path} is not a CSV ({error}): expected a header line and rows by commas") from error
    names = header or tuple(name.strip() for name in rows[0]) if rows else ()
    # Only UCI's files have no header line; there, a line with a bar is a comment.
    body = [row for row in rows if not row[0].startswith("|")] if header else rows[1:]
    if not body:
        raise DataError(f"{path} has no rows: expected a header line and at least one row")
    if len(set(names)) < len(names):
        raise DataError(f"{path} has two columns of one name in {few(names)}: rename one")
    for number, row in enumerate(body, 1):
        if len(row) != len(names):
            raise DataError(f"{path} has {len(row)} fields in row {number} and {len(names)} columns: repair the row")
    return {
        name: [tabular.cleaned(field) for field in fields]
        for name, fields in zip(names, zip(*body, strict=True), strict=True)
    }


def content(name: str, where: str, table: Table, target: str, parts: NDArray[np.int64]) -> Content:
    """A table's rows as features, its target column as labels."""
    if target not in table:
        raise DataError(f"{where} has no column '{target}': {choices(target, table)}")
    if len(table) < 2:
        raise DataError(f"{where} has no column beside '{target}': at least one is needed to learn from")
    if "" in table[target]:
        raise DataError(f"{where} has no '{target}' in row {table[target].index('') + 1}: fill it or remove the row")
    values = _same_names(table[target])
    classes = _classes(where, target, values)
    number = {value: each for each, value in enumerate(classes)}
    labels = np.array([number[value] for value in values])
    order, counts = arranged(name, labels, parts)
    ordered = {key: [fields[row] for row in order] for key, fields in table.items() if key != target}
    fitted = tuple(tabular.fitted(key, fields, counts[0]) for key, fields in ordered.items())
    width = sum(column.width for column in fitted)

    def chunks() -> Iterator[NDArray[np.float32]]:
        for each in slices(len(order), 4 * width):
            yield tabular.features(fitted, {key: fields[each] for key, fields in ordered.items()}, where)

    schema = Schema(name, "table", (width,), classes, columns=fitted, target=target)
    return Content(schema, labels[order], counts, chunks)


def _same_names(values: list[str]) -> list[str]:
    """Numbers that are equal are one class, by the shortest of their names: 1 and 1.0."""
    if tabular.numbers(values) is None:
        return values
    names: dict[float, str] = {}
    for value in sorted(set(values), key=lambda each: (len(each), each)):
        names.setdefault(float(value), value)
    return [names[float(value)] for value in values]


def _classes(where: str, target: str, values: list[str]) -> tuple[str, ...]:
    found = sorted(set(values))
    if not 2 <= len(found) <= min(MOST_CLASSES, max(2, len(values) // 2)):
        raise DataError(
            f"column '{target}' of {where} has {len(found):,} different values in {len(values):,} rows: "
            f"2 to {MOST_CLASSES:,} classes are needed, two rows each"
        )
    value, count = min(Counter(values).items(), key=lambda each: each[1])
    if count < 2:
        raise DataError(
            f"column '{target}' of {where} has the class '{value}' in one row only: two rows of each class are needed; "
            "add one, or remove it"
        )
    return tuple(sorted(found, key=float) if tabular.numbers(found) is not None else found)
