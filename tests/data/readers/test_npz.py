"""NPZ: images and tables of numpy."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from manyhands.data.load import load
from manyhands.data.schema import DataOptions
from manyhands.errors import DataError

RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.integers(256, size=(20, 6, 5, 3), dtype=np.uint8)
TABLE = np.arange(80.0).reshape(20, 4)
Y = np.arange(20) % 3


def saved(path: Path, **arrays: Any) -> str:
    np.savez(path / "set.npz", **arrays)
    return str(path / "set.npz")


@pytest.mark.parametrize(
    "images",
    [IMAGES, IMAGES.transpose(0, 3, 1, 2), IMAGES / 255.0, IMAGES.astype(np.int64)],
    ids=["bytes", "channels first", "0 to 1", "numbers"],
)
def test_images_are_bytes_channels_last(tmp_path: Path, images: np.ndarray) -> None:
    name = saved(tmp_path, x_train=images[:12], y_train=Y[:12, None], x_test=images[12:], y_test=Y[12:])
    dataset = load(name, DataOptions(validation=0))
    assert dataset.schema.shape == (3, 6, 5)
    np.testing.assert_array_equal(dataset.train.inputs, IMAGES)
    assert (len(dataset.train), len(dataset.test)) == (12, 8)


def test_grey_without_a_test_part(tmp_path: Path) -> None:
    dataset = load(saved(tmp_path, inputs=IMAGES[..., 0], labels=np.array(["b", "a"])[Y % 2]))
    assert dataset.schema.shape == (1, 6, 5)
    assert dataset.schema.classes == ("a", "b")
    assert (len(dataset.train), len(dataset.validation), len(dataset.test)) == (15, 1, 4)


def test_a_table_is_standardized_by_its_training_rows(tmp_path: Path) -> None:
    x = RANDOM.normal(5, 3, size=(40, 4))
    x[3, 1] = np.nan
    dataset = load(saved(tmp_path, x_train=x[:30], y_train=np.arange(30) % 2, x_test=x[30:], y_test=np.arange(10) % 2))
    assert dataset.schema.shape == (5,), "the column with a missing value says so in a second one"
    train = dataset.train.inputs[:30]
    np.testing.assert_allclose(train[:, [0, 1, 3, 4]].mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(train[:, [0, 1, 3, 4]].std(axis=0), 1, atol=1e-6)
    assert np.flatnonzero(dataset.train.inputs[:, 2]).tolist() == [3]


def test_class_order_is_mixed(tmp_path: Path) -> None:
    dataset = load(saved(tmp_path, x=np.arange(200.0)[:, None], y=np.arange(200) // 100), DataOptions(size=40))
    assert 5 < dataset.train.labels[dataset.train.index].sum() < 35


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"a": Y}, "holds a: expected x_train and y_train"),
        ({"x": IMAGES, "y": Y[:5]}, r"inputs \(20, 6, 5, 3\) and labels \(5,\)"),
        ({"x": IMAGES, "y": Y / 2}, "labels of type float64"),
        ({"x": IMAGES, "y": Y * 0}, "at least two classes"),
        ({"x": IMAGES, "y": Y, "x_test": IMAGES, "y_test": Y + 1}, "the label 3 outside the training part"),
        ({"x": IMAGES[..., :2], "y": Y}, r"samples of shape \(6, 5, 2\)"),
        ({"x": IMAGES - 300.0, "y": Y}, "pixels from -300"),
        ({"x": IMAGES[:0], "y": Y[:0]}, "one label for each sample"),
        ({"x": np.full((20, 4), np.nan), "y": Y}, r"set.npz: 80 of 80 values in x are NaN or infinite"),
        ({"x": TABLE, "y": Y, "x_test": TABLE * np.nan, "y_test": Y}, "80 of 80 values in x_test are NaN"),
        ({"x": np.where(TABLE > 78, np.inf, TABLE), "y": Y}, "1 of 80 values in x are NaN or infinite"),
        ({"x": np.where(IMAGES > 250, np.nan, IMAGES), "y": Y}, "1,800 values in x are NaN or infinite"),
        ({"x": TABLE.astype(str), "y": Y}, "x of type <U32: numbers are needed"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path: Path, arrays: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(DataError, match=message):
        load(saved(tmp_path, **arrays))


def test_what_is_no_npz(tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_bytes(b"PK no")
    with pytest.raises(DataError, match="cannot read"):
        load(str(tmp_path / "a.npz"))
