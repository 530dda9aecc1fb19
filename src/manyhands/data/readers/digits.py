"""Digits: the set that needs no download, made from scikit-learn's 1,797 real handwritten digits.

The originals are 8x8. Each is made smooth and 64x64 once; a sample turns, shears, scales and shifts one
of them at random, looks up its 28x28 pixels there, and is drawn thick or thin by the grey at which ink
begins.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from manyhands.data.schema import Schema
from manyhands.data.source import Content, Source, slices

TRAIN, TEST = 60_000, 10_000
SEED = 0
SIDE, FINE = 28, 64
DIGIT = 20  # pixels that the 8x8 original covers before scaling, as in MNIST


def source() -> Source:
    """The made set."""
    return Source("digits", "made from scikit-learn's digits", (), (), _read)


def _read() -> Content:
    from sklearn.datasets import load_digits  # takes a second to import, and is needed once

    generator = np.random.default_rng(SEED)
    train, test = originals(generator)
    chosen = np.concatenate([_repeated(train, TRAIN, generator), _repeated(test, TEST, generator)])
    images, labels = load_digits(return_X_y=True)
    fine = np.stack([_fine(image.reshape(8, 8)) for image in images])

    def chunks() -> Iterator[NDArray[np.uint8]]:
        for each in slices(len(chosen), SIDE * SIDE * 4):
            yield drawn(fine, chosen[each], generator)

    schema = Schema("digits", "image", (1, SIDE, SIDE), tuple("0123456789"))
    return Content(schema, labels[chosen].astype(np.int64), (TRAIN, 0, TEST), chunks)


def originals(generator: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Which originals the training and the test samples are made from: a seventh is kept for test."""
    mixed = generator.permutation(1797)
    return mixed[257:], mixed[:257]


def _repeated(chosen: NDArray[np.int64], count: int, generator: np.random.Generator) -> NDArray[np.int64]:
    return generator.permutation(np.resize(chosen, count))


def _fine(image: NDArray[np.float64]) -> NDArray[np.uint8]:
    """An 8x8 original (0..16) with a rim of paper, made smooth and FINE pixels wide."""
    padded = Image.fromarray(np.pad(image * (255 / 16), 1).astype(np.uint8))
    return np.asarray(padded.resize((FINE, FINE), Image.Resampling.BICUBIC))


def drawn(fine: NDArray[np.uint8], chosen: NDArray[np.int64], generator: np.random.Generator) -> NDArray[np.uint8]:
    """One random drawing of each chosen original: uint8 [N, SIDE, SIDE, 1]."""

    def draw(low: float, high: float) -> NDArray[np.float32]:
        return generator.uniform(low, high, (len(chosen), 1, 1)).astype(np.float32)

    angle, shear = draw(-0.26, 0.26), draw(-0.2, 0.2)
    # FINE pixels of the original (10 cells with its rim) for one pixel of the drawing.
    wide, high = (FINE * 8 / 10 / DIGIT / draw(0.85, 1.2) for _ in range(2))
    x = np.arange(SIDE, dtype=np.float32)[None, None, :] - (SIDE - 1) / 2 - draw(-2, 2)
    y = np.arange(SIDE, dtype=np.float32)[None, :, None] - (SIDE - 1) / 2 - draw(-2, 2)
    middle = FINE / 2
    column = (np.cos(angle) * x + (np.sin(angle) + shear) * y) * wide + middle
    row = (np.cos(angle) * y - np.sin(angle) * x) * high + middle
    # The rim is paper, so what lies outside may take its colour from there.
    at = np.clip(row, 0, FINE - 1).astype(np.int32) * FINE + np.clip(column, 0, FINE - 1).astype(np.int32)
    grey = fine.reshape(len(fine), -1)[chosen[:, None, None], at]
    ink: NDArray[np.float32] = (grey - draw(60, 130)) * draw(2.5, 4)
    return ink.clip(0, 255).astype(np.uint8)[..., None]
