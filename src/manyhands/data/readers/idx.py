"""IDX: the format of MNIST, two files of images and two of labels."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyhands.data.schema import DataOptions, Schema
from manyhands.data.source import TEST, TRAIN, Content, Source, arranged, in_chunks, reading
from manyhands.errors import DataError

FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


def matches(path: Path) -> bool:
    """Whether a folder holds MNIST's files, packed or not."""
    return all(_file(path, name).exists() for name in FILES)


def source(name: str, path: Path, options: DataOptions) -> Source:
    """The four files of a folder."""
    paths = tuple(_file(path, each) for each in FILES)
    return Source(name, str(path), paths, (), lambda: _read(name, paths))


def _file(folder: Path, name: str) -> Path:
    unpacked = folder / name
    return unpacked if unpacked.exists() else folder / f"{name}.gz"


def _read(name: str, paths: tuple[Path, ...]) -> Content:
    images, labels, test_images, test_labels = (read_idx(path) for path in paths)
    for path, pictures, numbers in ((paths[1], images, labels), (paths[3], test_images, test_labels)):
        if len(pictures) != len(numbers):
            raise DataError(f"{path} has {len(numbers):,} labels for {len(pictures):,} images: replace it")
    if images.ndim != 3 or images.shape[1:] != test_images.shape[1:]:
        raise DataError(
            f"{paths[0]} holds images of shape {images.shape[1:]}, {paths[2]} of {test_images.shape[1:]}: "
            "grey images of one size are needed"
        )
    classes = int(labels.max()) + 1
    if test_labels.max() >= classes:
        raise DataError(f"{paths[3]} has the label {test_labels.max()}; the training labels end at {classes - 1}")
    schema = Schema(name, "image", (1, *images.shape[1:]), tuple(map(str, range(classes))))
    both = np.concatenate([labels, test_labels]).astype(np.int64)
    parts = np.repeat([TRAIN, TEST], [len(labels), len(test_labels)])
    order, counts = arranged(name, both, parts)
    rows = np.concatenate([images, test_images])[order, ..., None]
    return Content(schema, both[order], counts, in_chunks(rows))


def read_idx(path: Path) -> NDArray[np.uint8]:
    """An array of bytes: two zeros, type 8, number of dimensions, each as a big-endian number, the bytes."""
    opener: Any = gzip.open if path.suffix == ".gz" else open
    with reading(path), opener(path, "rb") as file:
        content: bytes = file.read()
    if len(content) < 4 or content[:3] != b"\0\0\x08" or not 1 <= content[3] <= 4:
        raise DataError(f"{path} begins with {content[:4].hex(' ')}: expected 00 00 08 and 1 to 4 dimensions")
    start = 4 + 4 * content[3]
    if len(content) < start:
        raise DataError(f"{path} has {len(content)} bytes, its header alone needs {start}: replace it")
    shape = np.frombuffer(content, ">i4", content[3], 4).astype(np.int64)
    expected = start + int(np.prod(shape))
    if len(content) != expected or not all(shape):
        raise DataError(
            f"{path} has {len(content):,} bytes, its header says {expected:,} "
            f"({' x '.join(map(str, shape))}): get a whole copy"
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)
