"""Synthetic: a made set of any shape that can be learned, a pattern for each class under noise."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyhands.data.schema import Column, Schema
from manyhands.data.source import Content, Source, slices
from manyhands.data.vocabulary import SPECIAL
from manyhands.errors import DataError

PREFIX = "synthetic:"
SPEC = re.compile(r"synthetic:(text:)?(\d+(?:x\d+x\d+)?),(\d+)")
SAMPLES, TEST_SAMPLES = 10_000, 2_000
POOL = 64 << 20  # bytes of distinct samples: larger sets go round them again
SEED = 0
CELLS = 8  # of an image's pattern, down and across
WORDS, CLASS_WORDS = 1000, 20

Draw = Callable[[np.random.Generator, NDArray[np.int64]], NDArray[Any]]


def source(spec: str) -> Source:
    """The set that a name such as synthetic:3x64x64,10 describes."""
    match = SPEC.fullmatch(spec)
    shape = tuple(map(int, match[2].split("x"))) if match else ()
    if not match or 0 in shape or (match[1] and len(shape) > 1) or int(match[3]) < 2:
        raise DataError(
            f"'{spec}' is not a shape and a number of classes (2 or more): "
            "expected synthetic:3x64x64,10 or synthetic:784,10 or synthetic:text:64,20"
        )
    if len(shape) == 3 and shape[0] not in (1, 3):
        raise DataError(f"'{spec}' asks for {shape[0]} channels: 1 or 3 are allowed")
    classes = tuple(f"class {each}" for each in range(int(match[3])))
    if match[1]:
        words = (*SPECIAL, *(f"word{each}" for each in range(len(SPECIAL), WORDS)))
        schema = Schema(spec, "text", shape, classes, vocabulary=words)
    elif len(shape) == 3:
        schema = Schema(spec, "image", shape, classes)
    else:
        columns = tuple(Column(f"x{each}", "numeric") for each in range(shape[0]))
        schema = Schema(spec, "table", shape, classes, columns=columns, target="y")
    return Source(spec, "made here", (), (), lambda: _read(schema))


def _read(schema: Schema) -> Content:
    generator = np.random.default_rng(SEED)
    row_bytes = int(np.prod(schema.shape)) * (1 if schema.kind == "image" else 4)
    rows = max(12, min(POOL // row_bytes, SAMPLES + TEST_SAMPLES))
    labels = generator.integers(len(schema.classes), size=rows)
    draw = {"image": _images, "text": _texts, "table": _tables}[schema.kind](schema, generator)

    def chunks() -> Iterator[NDArray[Any]]:
        return (draw(generator, labels[each]) for each in slices(rows, row_bytes))

    test = rows // 6
    return Content(schema, labels, (rows - test, 0, test), chunks)


def _images(schema: Schema, generator: np.random.Generator) -> Draw:
    channels, height, width = schema.shape
    patterns = generator.integers(128, size=(len(schema.classes), CELLS, CELLS, channels), dtype=np.uint8)
    down, across = (np.arange(side) * CELLS // side for side in (height, width))

    def draw(generator: np.random.Generator, labels: NDArray[np.int64]) -> NDArray[Any]:
        noise = generator.integers(128, size=(len(labels), height, width, channels), dtype=np.uint8)
        return patterns[labels][:, down][:, :, across] + noise

    return draw


def _texts(schema: Schema, generator: np.random.Generator) -> Draw:
    (length,) = schema.shape
    favourites = generator.integers(len(SPECIAL), WORDS, size=(len(schema.classes), CLASS_WORDS))

    def draw(generator: np.random.Generator, labels: NDArray[np.int64]) -> NDArray[Any]:
        shape = (len(labels), length)
        ids = generator.integers(len(SPECIAL), WORDS, size=shape)
        typical = np.take_along_axis(favourites[labels], generator.integers(CLASS_WORDS, size=shape), axis=1)
        ids = np.where(generator.random(shape) < 0.3, typical, ids)
        ends = generator.integers(length // 2 + 1, length + 1, size=(len(labels), 1))
        return np.where(np.arange(length) < ends, ids, 0)

    return draw


def _tables(schema: Schema, generator: np.random.Generator) -> Draw:
    centres = generator.normal(size=(len(schema.classes), *schema.shape))

    def draw(generator: np.random.Generator, labels: NDArray[np.int64]) -> NDArray[Any]:
        return (centres[labels] + generator.normal(size=(len(labels), *schema.shape))).astype(np.float32)

    return draw
