"""New files become exactly what the store holds of the same sample."""

import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from data import make
from manyhands.data.dataset import Dataset
from manyhands.data.encode import encode
from manyhands.data.load import load
from manyhands.data.schema import DataOptions
from manyhands.errors import DataError


def in_store(dataset: Dataset, row: np.ndarray) -> np.ndarray:
    """The stored rows that equal a row."""
    return np.flatnonzero((dataset.train.inputs == row).reshape(len(dataset.train.inputs), -1).all(axis=1))


@pytest.mark.parametrize("size", [None, 20])
def test_images(tmp_path: Path, size: int | None) -> None:
    files = {f"{name}/{k}.jpg": make.picture(k, (90 + k, 70), form="JPEG") for name in "ab" for k in range(4)}
    folder = make.tree(tmp_path / "set", files)
    dataset = load(str(folder), DataOptions(image_size=size))
    paths = [folder / "a" / "2.jpg", folder / "b" / "0.jpg"]
    labels, rows = encode(dataset.schema, paths)
    assert labels == [str(path) for path in paths]
    assert rows.dtype == np.uint8
    for row in rows:
        assert len(in_store(dataset, row)) == 2, "the two classes have the same images here"


def test_real_photographs(real: Callable[[str], Dataset], real_folder: Callable[[str], Path], tmp_path: Path) -> None:
    dataset = real("dogs-vs-cats")
    (archive,) = real_folder("dogs-vs-cats").glob("*.zip")
    with zipfile.ZipFile(archive) as file:
        name = next(each for each in file.namelist() if each.startswith("train/dog."))
        path = Path(file.extract(name, tmp_path))
    (row,) = in_store(dataset, encode(dataset.schema, [path])[1][0])
    assert dataset.schema.classes[dataset.train.labels[row]] == "dog"


def test_a_png_of_an_idx_image(tmp_path: Path) -> None:
    dataset = load(str(make.mnist(tmp_path / "set")))
    Image.fromarray(np.asarray(dataset.train.inputs[7, :, :, 0])).save(tmp_path / "seven.png")
    _, rows = encode(dataset.schema, [tmp_path / "seven.png"])
    np.testing.assert_array_equal(rows[0], dataset.train.inputs[7])


def test_sixteen_bit_grey(tmp_path: Path) -> None:
    dataset = load(str(make.mnist(tmp_path / "set")))
    deep = np.asarray(dataset.train.inputs[7, :, :, 0]).astype(np.uint16) * 257
    Image.fromarray(deep).save(tmp_path / "seven.png")
    _, rows = encode(dataset.schema, [tmp_path / "seven.png"])
    np.testing.assert_array_equal(rows[0], dataset.train.inputs[7])


def test_text(tmp_path: Path) -> None:
    rows = [("Good morning ☕", 0), ("don't #stop @user", 1), ("good\u2028night", 0), ("stop", 1)]
    folder = make.tweets(tmp_path / "set", {"train": rows, "test": rows[:1]})
    dataset = load(str(folder))
    labels, found = encode(dataset.schema, [folder / "train_text.txt"])
    assert labels == [f"{folder / 'train_text.txt'}:{row}" for row in (1, 2, 3, 4)]
    np.testing.assert_array_equal(found, dataset.train.inputs[:4])


def test_csv_with_columns_in_another_order_and_no_target(tmp_path: Path) -> None:
    rows = [(k, "" if k % 5 == 0 else "red" if k % 2 else "blue", k % 3) for k in range(30)]
    (tmp_path / "a.csv").write_text("n,colour,y\n" + "".join(f"{n},{c},{y}\n" for n, c, y in rows))
    (tmp_path / "new.csv").write_text("colour,more,n\n" + "".join(f"{c},x,{n}\n" for n, c, _ in rows))
    dataset = load(str(tmp_path / "a.csv"), DataOptions(target="y", validation=0))
    labels, found = encode(dataset.schema, [tmp_path / "new.csv"])
    assert labels[29].endswith("new.csv:30")
    order = [int(in_store(dataset, row)[0]) for row in found]
    assert sorted(order) == list(range(30))
    assert dataset.train.labels[order].tolist() == [y for _, _, y in rows]


def test_what_cannot_be_encoded(tmp_path: Path) -> None:
    image = load(str(make.mnist(tmp_path / "set"))).schema
    (tmp_path / "a.csv").write_text("n,m,y\n" + "".join(f"{k},{k},{k % 2}\n" for k in range(10)))
    table = load(str(tmp_path / "a.csv"), DataOptions(target="y")).schema
    files = {"b.csv": b"n,z\n1,2\n", "c.csv": b"n,m\n1,two\n", "d.png": b"?", "empty.txt": b""}
    make.tree(tmp_path, files)
    text = load("synthetic:text:8,2").schema
    for schema, names, message in (
        (image, [], "no files to predict"),
        (image, ["gone.png"], "gone.png is missing"),
        (image, ["d.png"], "cannot decode .*d.png"),
        (image, ["set"], "cannot read .*set"),
        (table, ["b.csv"], "lacks the columns m: it has n, z"),
        (table, ["c.csv"], "'two' in column 'm'"),
        (text, ["empty.txt"], "has no lines"),
    ):
        with pytest.raises(DataError, match=message):
            encode(schema, [tmp_path / name for name in names])
