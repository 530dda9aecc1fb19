"""Synthetic: of the shape asked for, learnable, bounded, its parts apart."""

import numpy as np
import pytest
from sklearn.linear_model import RidgeClassifier

from manyhands.data.dataset import Dataset
from manyhands.data.load import load
from manyhands.data.schema import DataOptions
from manyhands.errors import DataError


@pytest.mark.parametrize(
    ("name", "kind", "shape", "classes", "stored"),
    [
        ("synthetic:3x16x12,10", "image", (3, 16, 12), 10, (16, 12, 3)),
        ("synthetic:text:64,20", "text", (64,), 20, (64,)),
        ("synthetic:50,7", "table", (50,), 7, (50,)),
    ],
)
def test_of_the_shape_asked_for(
    name: str, kind: str, shape: tuple[int, ...], classes: int, stored: tuple[int, ...]
) -> None:
    dataset = load(name)
    assert (dataset.schema.kind, dataset.schema.shape, len(dataset.schema.classes)) == (kind, shape, classes)
    assert dataset.train.inputs.shape[1:] == stored
    assert (len(dataset.train), len(dataset.validation), len(dataset.test)) == (9_500, 500, 2_000)
    assert set(dataset.train.labels[dataset.train.index]) == set(range(classes))
    if kind == "text":
        assert 0 <= dataset.train.inputs.min() <= dataset.train.inputs.max() < len(dataset.schema.vocabulary)


def accuracy(dataset: Dataset) -> float:
    def features(index: np.ndarray) -> np.ndarray:
        rows = np.asarray(dataset.train.inputs[index])
        if dataset.schema.kind == "text":
            rows = np.stack([np.bincount(row, minlength=1000) for row in rows])
        return rows.reshape(len(rows), -1).astype(np.float32)

    train, test = dataset.train.index[:3_000], dataset.test.index[:500]
    model = RidgeClassifier().fit(features(train), dataset.train.labels[train])
    return model.score(features(test), dataset.train.labels[test])


@pytest.mark.parametrize("name", ["synthetic:1x12x12,5", "synthetic:text:32,5", "synthetic:40,5"])
def test_can_be_learned(name: str) -> None:
    assert accuracy(load(name)) > 0.8


def test_large_sets_go_round_a_bounded_pool_and_stay_apart() -> None:
    dataset = load("synthetic:3x256x256,4", DataOptions(size=100_000))
    assert len(dataset.train) + len(dataset.validation) == 100_000
    assert dataset.bytes < 70e6
    parts = [set(part.index.tolist()) for part in (dataset.train, dataset.validation, dataset.test)]
    assert sum(map(len, parts)) == len(set.union(*parts)) == len(dataset.train.labels)


@pytest.mark.parametrize(
    "name",
    [
        "synthetic:",
        "synthetic:3x64,10",
        "synthetic:0,10",
        "synthetic:784",
        "synthetic:784,1",
        "synthetic:text:3x4x4,2",
        "synthetic:2x8x8,10",
    ],
)
def test_what_is_no_shape_is_refused(name: str) -> None:
    with pytest.raises(DataError, match=f"'{name}'"):
        load(name)
