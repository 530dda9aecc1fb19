"""Load: a name or a path to a data set that is ready to be fed."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from manyhands.data import catalog
from manyhands.data.cache import Stored, stored
from manyhands.data.dataset import Dataset, Split
from manyhands.data.readers import adult, csv_table, digits, idx, images, npz, synthetic, tweeteval
from manyhands.data.schema import DataOptions
from manyhands.data.source import Reader, Source
from manyhands.errors import DataError, choices
from manyhands.progress import say

FORMATS: tuple[Reader, ...] = (idx, tweeteval, adult, npz, csv_table, images)  # the first that matches a path reads it


def load(name: str, options: DataOptions = DataOptions()) -> Dataset:  # noqa: B008, frozen
    """The data set of a known name, a path, or a description such as synthetic:3x64x64,10."""
    _check(options)
    source = _source(name, options)
    found = stored(source)
    side = options.image_size
    if side and found.schema.kind == "image" and found.schema.shape[1:] != (side, side):
        height, width = found.schema.shape[1:]
        raise DataError(
            f"image_size {side} is for image files; {name} is {height}x{width} already: leave image_size out"
        )
    parts = _made_parts if name.startswith(synthetic.PREFIX) else _parts
    train, validation, test = (Split(found.inputs, found.labels, rows) for rows in parts(found, options))
    return Dataset(found.schema, train, validation, test, source.where, found.checksum)


def _check(options: DataOptions) -> None:
    for key in ("size", "test_size", "image_size", "length"):
        value = getattr(options, key)
        if value is not None and value < 1:
            raise DataError(f"data.{key} is {value}: 1 or more is allowed")
    if not 0 <= options.validation < 1:
        raise DataError(f"data.validation is {options.validation}: a share from 0 to below 1 is allowed")
    if options.vocabulary < 3:
        raise DataError(f"data.vocabulary is {options.vocabulary}: 3 or more is allowed, padding and unknown included")


def _source(name: str, options: DataOptions) -> Source:
    if name.startswith(synthetic.PREFIX):
        return synthetic.source(name)
    if name == "digits":
        return digits.source()
    if entry := catalog.KNOWN.get(name):
        folder = catalog.find(entry)
        if folder is None or not entry.reader:
            raise catalog.absent(entry)
        return catalog.reader_of(entry).source(name, folder, options)
    path = Path(name).expanduser()
    if not path.exists():
        raise DataError(
            f"'{name}' is neither a known data set nor a path: {choices(name, catalog.KNOWN)}, "
            "the path of a zip, folder, csv or npz, or synthetic:3x64x64,10"
        )
    for reader in FORMATS:
        if reader.matches(path):
            return reader.source(path.resolve().name.split(".")[0], path, options)
    raise DataError(
        f"{path} has no format that can be read: expected a zip or folder of images (class/image), a csv, "
        "an npz, or a folder with MNIST's or TweetEval's files"
    )


def _parts(found: Stored, options: DataOptions) -> tuple[NDArray[np.int64], ...]:
    """The rows of train, validation and test."""
    rows = np.arange(sum(found.counts))
    ends = np.cumsum(found.counts)
    train, validation, test = rows[: ends[0]], rows[ends[0] : ends[1]], rows[ends[1] :]
    if options.size and options.size > len(train):
        say(f"data.size is {options.size:,}: all {len(train):,} training samples are used")
    train = train[: options.size]
    if not len(validation):
        held = np.zeros(len(train), dtype=bool)
        held[np.random.default_rng(options.seed).permutation(len(train))[: _held_out(len(train), options)]] = True
        train, validation = train[~held], train[held]
    if options.test_size and options.test_size < len(test):
        test = test[np.arange(options.test_size) * len(test) // options.test_size]
    return train, validation, test


def _held_out(count: int, options: DataOptions) -> int:
    """How many of the training samples are for validation: at least one if any, and never all."""
    return min(count - 1, max(1, round(options.validation * count))) if options.validation else 0


def _made_parts(found: Stored, options: DataOptions) -> tuple[NDArray[np.int64], ...]:
    """As many samples as are asked for: each part goes round its own rows of the pool."""
    total = options.size or synthetic.SAMPLES
    train, validation, test = _parts(found, replace(options, size=min(total, found.counts[0])))
    held = _held_out(total, options)
    return (
        np.resize(train, total - held),
        np.resize(validation, held),
        np.resize(test, options.test_size or synthetic.TEST_SAMPLES),
    )
