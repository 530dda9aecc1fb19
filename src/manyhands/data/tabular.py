"""Tabular: the raw text of a table as features, fitted on its training rows."""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from manyhands.data.schema import Column
from manyhands.errors import DataError

MISSING = ("", "?", "na", "nan")
MOST_LEVELS = 64
LARGEST = 1e150  # whose square is still a number


def cleaned(value: str) -> str:
    """A field without blanks around it, empty if it stands for a missing value."""
    value = value.strip()
    return "" if value.lower() in MISSING else value


def numbers(values: Sequence[str]) -> NDArray[np.float64] | None:
    """Cleaned fields as numbers, NaN where missing; None if one of them is no number."""
    try:
        parsed = np.array([value or "nan" for value in values], dtype=np.float64)
    except ValueError:
        return None
    return np.where(np.isfinite(parsed), parsed, np.nan)


def fitted(name: str, values: Sequence[str], training: int) -> Column:
    """A column's kind, by all its values; its numbers and levels, by its first `training` values."""
    if (parsed := numbers(values)) is not None:
        return fitted_numbers(name, parsed[:training])
    counts = Counter(values[:training])
    levels = sorted(counts, key=lambda level: (-counts[level], level))[:MOST_LEVELS]
    return Column(name, "category", levels=tuple(levels))


def fitted_numbers(name: str, values: NDArray[np.float64]) -> Column:
    """A numeric column, by its training values."""
    there = values[~np.isnan(values)]
    if len(there) and float(np.abs(there).max()) > LARGEST:
        raise DataError(
            f"column '{name}' has {there[np.abs(there).argmax()]:g}: numbers up to {LARGEST:g} can be learned from; "
            "rescale the column, or leave the field empty"
        )
    if not len(there):
        return Column(name, "numeric")
    fill = float(np.median(there))
    whole = np.where(np.isnan(values), fill, values)
    mean, std = float(whole.mean()), float(whole.std())
    return Column(name, "numeric", mean, std or 1.0, fill, missing=len(there) < len(values))


def features(columns: Sequence[Column], table: Mapping[str, Sequence[str]], where: str) -> NDArray[np.float32]:
    """The features of some rows, each column given as cleaned fields."""
    return np.concatenate([_column_features(column, table[column.name], where) for column in columns], axis=1)


def _column_features(column: Column, values: Sequence[str], where: str) -> NDArray[np.float32]:
    if column.kind == "category":
        number = {level: each for each, level in enumerate(column.levels)}
        other = len(column.levels)
        return np.eye(column.width, dtype=np.float32)[[number.get(value, other) for value in values]]
    parsed = numbers(values)
    if parsed is None:
        wrong = next(value for value in values if numbers([value]) is None)
        raise DataError(f"{where} has '{wrong}' in column '{column.name}': a number is needed, or an empty field")
    return standard(column, parsed)


def standard(column: Column, values: NDArray[np.float64]) -> NDArray[np.float32]:
    """The features of a numeric column."""
    absent = np.isnan(values)
    scaled = (np.where(absent, column.fill, values) - column.mean) / column.std
    if scaled.size and np.abs(scaled).max() > np.finfo(np.float32).max:
        raise DataError(
            f"column '{column.name}' has {values[np.abs(scaled).argmax()]:g}, which is too far from its mean of "
            f"{column.mean:g} for single precision: rescale the column, or leave the field empty"
        )
    return np.stack([scaled, absent][: column.width], axis=1).astype(np.float32)
