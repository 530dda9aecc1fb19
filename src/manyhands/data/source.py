"""Source: something that can be read, and Content: what reading it gives."""

import stat
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from manyhands.data.schema import DataOptions, Schema
from manyhands.errors import DataError

TRAIN, VALIDATION, TEST = range(3)
HOLD_OUT = 0.2  # for test, where the source brings no test part
ORDER_SEED = 0  # of the order in which rows are stored: fixed, so that a test part never changes
CHUNK = 8 << 20  # bytes that are decoded and written at a time


@dataclass(frozen=True)
class Content:
    """A source that has been read: training rows first, then validation, then test."""

    schema: Schema  # of images: without mean and std, which are taken while the rows are stored
    labels: NDArray[np.int64]
    counts: tuple[int, int, int]
    chunks: Callable[[], Iterator[NDArray[Any]]]  # the inputs, some rows at a time


@dataclass(frozen=True)
class Source:
    """Where a data set comes from: what identifies it, and how to read it."""

    name: str
    where: str
    files: tuple[Path, ...]  # what is read: a change of one of them means reading again
    options: tuple[str | int | None, ...]  # those that change what is stored
    read: Callable[[], Content]


class Reader(Protocol):
    """What each module of `readers` for files offers."""

    def matches(self, path: Path) -> bool:
        """Whether it can read what lies at a path."""

    def source(self, name: str, path: Path, options: DataOptions) -> Source:
        """What lies at a path, not read yet."""


def arranged(
    name: str, labels: NDArray[np.int64], parts: NDArray[np.int64]
) -> tuple[NDArray[np.int64], tuple[int, int, int]]:
    """The order in which rows are stored, and how many belong to each part.

    Without a test part, one is held out. Training rows in class order are shuffled, so that the first N are
    a fair sample; any other order is kept.
    """
    generator = np.random.default_rng(ORDER_SEED)
    train, validation, test = (np.flatnonzero(parts == part) for part in (TRAIN, VALIDATION, TEST))
    if not len(test):
        mixed = generator.permutation(train)
        held = max(1, round(HOLD_OUT * len(train)))
        test, train = np.sort(mixed[:held]), np.sort(mixed[held:])
    if not len(train):
        raise DataError(f"{name} has {len(labels)} labelled samples and none is left to train on: add more")
    if (np.diff(labels[train]) >= 0).all():
        train = generator.permutation(train)
    return np.concatenate([train, validation, test]), (len(train), len(validation), len(test))


def in_chunks(rows: NDArray[Any]) -> Callable[[], Iterator[NDArray[Any]]]:
    """The `chunks` of a content whose inputs are in memory already."""
    return lambda: (rows[each] for each in slices(len(rows), rows[:1].nbytes))


def slices(rows: int, row_bytes: int) -> Iterator[slice]:
    """The pieces, CHUNK bytes each, in which so many rows are handled."""
    step = max(1, CHUNK // row_bytes)
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn the operating system's refusals while reading `path` into one clear line."""
    try:
        mode = path.stat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise DataError(f"{path} is a device, a pipe or a socket: data are read from regular files alone")
        yield
    except FileNotFoundError as error:
        raise DataError(f"{path} is missing: put it there, or name another path") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text (byte {error.start}): convert it to UTF-8") from error
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"cannot read {path} ({error}): replace it with a whole, readable file") from error
