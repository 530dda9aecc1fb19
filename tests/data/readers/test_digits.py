"""Digits: always the same, varied, and apart."""

import numpy as np
from sklearn.neighbors import KNeighborsClassifier

from manyhands.data.dataset import Dataset
from manyhands.data.readers import digits as made


def test_the_counts(digits: Dataset) -> None:
    assert (len(digits.train), len(digits.validation), len(digits.test)) == (57_000, 3_000, 10_000)
    assert digits.schema.shape == (1, 28, 28)
    counts = np.bincount(digits.train.labels[:60_000])
    assert counts.min() > 5_000


def test_train_and_test_have_other_originals() -> None:
    train, test = made.originals(np.random.default_rng(made.SEED))
    assert not set(train) & set(test)
    assert len(train) + len(test) == 1797


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
