"""IDX: read as written, and every kind of damage named."""

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from data import make
from manyhands.data.load import load
from manyhands.data.readers.idx import read_idx
from manyhands.data.schema import DataOptions
from manyhands.errors import DataError

LABELS = "train-labels-idx1-ubyte"


@pytest.mark.parametrize("pack", [True, False])
def test_every_sample_in_its_place(tmp_path: Path, pack: bool) -> None:
    dataset = load(str(make.mnist(tmp_path / "set", pack=pack)), DataOptions(validation=0))
    assert dataset.schema.shape == (1, 5, 6)
    assert dataset.schema.classes == ("0", "1", "2", "3")
    assert dataset.train.inputs.shape == (50, 5, 6, 1)
    assert dataset.train.inputs[:, 0, 0, 0].tolist() == [*range(40), *range(10)]
    assert dataset.test.labels[dataset.test.index].tolist() == [1, 0, 3, 2, 1, 0, 3, 2, 1, 0]


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def other_magic(path: Path) -> None:
    path.write_bytes(b"PK" + path.read_bytes())


def header_only(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:6])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (truncate, r"train-labels.* has 45 bytes, its header says 48 \(40\)"),
        (other_magic, "begins with 50 4b 00 00: expected 00 00 08"),
        (header_only, "has 6 bytes, its header alone needs 8"),
        (lambda path: path.write_bytes(b""), "begins with"),
        (lambda path: path.write_bytes(make.idx(np.arange(39) % 4)), "39 labels for 40 images"),
        (lambda path: path.write_bytes(make.idx(np.zeros(40))), "the label 3; the training labels end at 0"),
    ],
)
def test_damage_is_named(tmp_path: Path, home: Path, damage: Callable[[Path], object], message: str) -> None:
    folder = make.mnist(tmp_path / "set", pack=False)
    damage(folder / LABELS)
    with pytest.raises(DataError, match=message):
        load(str(folder))
    assert not [each for each in (home / "data").iterdir() if each.is_dir()], "nothing half-written"


@pytest.mark.parametrize(
    "content",
    [gzip.compress(bytes(1000))[:-9], b"not gzip", gzip.compress(bytes(99))[:15]],
    ids=["no end", "no gzip", "no middle"],  # not its bytes, which tell the second in which a process packed them
)
def test_a_broken_gzip_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.gz").write_bytes(content)
    with pytest.raises(DataError, match=r"cannot read .*a\.gz"):
        read_idx(tmp_path / "a.gz")
