"""Digits: always the same, varied, and apart."""

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

from manyhands.data.dataset import Dataset
from manyhands.data.readers import digits as made


def test_the_counts(digits: Dataset) -> None:
    assert (len(digits.train), len(digits.validation), len(digits.test)) == (57_000, 3_000, 10_000)
    assert digits.schema.shape == (1, 28, 28)
    counts = np.bincount(digits.train.labels[:60_000])
    assert counts.min() > 5_000


def test_train_and_test_are_drawn_from_other_originals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(made, "drawn", lambda fine, chosen, generator: chosen)
    chosen = np.concatenate(list(made.source().read().chunks()))
    train, test = set(chosen[:60_000].tolist()), set(chosen[60_000:].tolist())
    assert not train & test
    assert train | test == set(range(1797))
    assert 1797 / 8 < len(test) < 1797 / 6


def test_seeded(digits: Dataset) -> None:
    chunk = next(made.source().read().chunks())
    np.testing.assert_array_equal(digits.train.inputs[: len(chunk)], chunk)


def test_no_two_are_the_same(digits: Dataset) -> None:
    flat = digits.train.inputs[:5_000].reshape(5_000, -1)
    assert len(np.unique(flat, axis=0)) == 5_000


def test_they_can_be_told_apart_but_not_at_once(digits: Dataset) -> None:
    """The nearest of 3,000 others is right far above chance on originals never seen, and not always."""
    inputs, labels = digits.train.inputs.reshape(70_000, -1), digits.train.labels
    neighbours = KNeighborsClassifier(1).fit(inputs[:3_000], labels[:3_000])
    assert 0.7 < neighbours.score(inputs[-500:], labels[-500:]) < 0.99
