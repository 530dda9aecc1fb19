"""What is said of data sets."""

from pathlib import Path

import pytest

from data import make
from manyhands.data.catalog import listing
from manyhands.data.dataset import info
from manyhands.data.load import load


def test_info(tmp_path: Path) -> None:
    told = info(load(str(make.mnist(tmp_path / "small"))))
    assert told == {
        "name": "small",
        "kind": "image",
        "train": 38,
        "val": 2,
        "test": 10,
        "classes": 4,
        "shape": [1, 5, 6],
        "bytes": 50 * (30 + 8),
        "source": str(tmp_path / "small"),
    }


def test_listing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make.mnist(tmp_path / "mnist")
    (tmp_path / "tweets").mkdir()
    monkeypatch.setenv("MANYHANDS_DATA", str(tmp_path))
    here = {row["name"]: row["where"] for row in listing() if row["present"]}
    assert here == {"digits": "made here", "mnist": str(tmp_path / "mnist")}
    absent = {row["name"] for row in listing() if not row["present"]}
    assert absent == {"tiny-imagenet", "dogs-vs-cats", "tweets", "adult"}
