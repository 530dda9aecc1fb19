"""Names and paths to data sets: the counts of the real ones, their splits, and what is refused."""

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from data import make
from manyhands.data.dataset import Dataset, Split
from manyhands.data.load import load
from manyhands.data.schema import DataOptions
from manyhands.errors import DataError


def rows(split: Split) -> np.ndarray:
    return split.inputs[split.index]


def disjoint(dataset: Dataset) -> bool:
    parts = [set(part.index.tolist()) for part in (dataset.train, dataset.validation, dataset.test)]
    return not any(first & second for first, second in itertools.combinations(parts, 2))


# name, training samples with and without validation, test samples, shape, classes
COUNTS = [
    ("mnist", 57_000, 3_000, 10_000, (1, 28, 28), 10),
    ("tweets", 45_000, 5_000, 50_000, (24,), 20),
    ("adult", 30_933, 1_628, 16_281, (116,), 2),
    ("tiny-imagenet", 7_600, 400, 2_000, (3, 64, 64), 200),
    ("dogs-vs-cats", 951, 50, 249, (3, 128, 128), 2),
]


@pytest.mark.parametrize(("name", "train", "validation", "test", "shape", "classes"), COUNTS)
def test_the_real_sets(
    real: Callable[[str], Dataset],
    name: str,
    train: int,
    validation: int,
    test: int,
    shape: tuple[int, ...],
    classes: int,
) -> None:
    dataset = real(name)
    assert (len(dataset.train), len(dataset.validation), len(dataset.test)) == (train, validation, test)
    assert dataset.schema.shape == shape
    assert len(dataset.schema.classes) == classes
    assert len(dataset.train.labels) == train + validation + test
    assert disjoint(dataset)
    for part in (dataset.train, dataset.validation, dataset.test):
        assert set(np.unique(part.labels[part.index])) <= set(range(classes))
    again = real(name)
    for first, second in ((dataset.train, again.train), (dataset.test, again.test)):
        np.testing.assert_array_equal(first.index, second.index)
        np.testing.assert_array_equal(rows(first)[:500], rows(second)[:500])


def test_mnist_keeps_its_order_and_its_moments(real: Callable[..., Dataset]) -> None:
    dataset = real("mnist", validation=0.0)
    assert dataset.train.labels[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    counts = np.bincount(dataset.test.labels[dataset.test.index])
    assert counts.tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    np.testing.assert_allclose(dataset.schema.mean, 0.1307 * 255, rtol=1e-3)
    np.testing.assert_allclose(dataset.schema.std, 0.3081 * 255, rtol=1e-3)


@pytest.mark.parametrize("name", ["tiny-imagenet", "dogs-vs-cats"])
def test_the_first_samples_are_a_fair_sample(real: Callable[..., Dataset], name: str) -> None:
    dataset = real(name, size=200, validation=0.0)
    classes = len(dataset.schema.classes)
    assert len(set(dataset.train.labels[dataset.train.index].tolist())) > min(classes, 200) // 2


def test_size_is_the_first_samples_before_validation(tmp_path: Path) -> None:
    name = str(make.mnist(tmp_path / "set"))
    dataset = load(name, DataOptions(size=20, validation=0.25))
    assert (len(dataset.train), len(dataset.validation), len(dataset.test)) == (15, 5, 10)
    assert sorted([*dataset.train.index, *dataset.validation.index]) == list(range(20))
    assert disjoint(dataset)


def test_fewer_test_samples_are_spread_over_all(digits: Dataset) -> None:
    few = load("digits", DataOptions(test_size=7))
    every = digits.test.index
    assert few.test.index.tolist() == [every[number * len(every) // 7] for number in range(7)]
    assert few.train.index.tolist() == digits.train.index.tolist()
    assert len(load("digits", DataOptions(test_size=10**6)).test) == len(digits.test)
    assert len(load("synthetic:4,2", DataOptions(test_size=12)).test) == 12


def test_the_seed_moves_the_validation_part_and_nothing_else(tmp_path: Path) -> None:
    name = str(make.mnist(tmp_path / "set"))
    first, same, other = (load(name, DataOptions(validation=0.2, seed=seed)) for seed in (0, 0, 1))
    assert first.validation.index.tolist() == same.validation.index.tolist()
    assert first.validation.index.tolist() != other.validation.index.tolist()
    assert first.test.index.tolist() == other.test.index.tolist()


def test_all_samples_where_more_are_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dataset = load(str(make.mnist(tmp_path / "set")), DataOptions(size=1000, validation=0.0))
    assert len(dataset.train) == 40
    assert len(dataset.validation) == 0
    assert "all 40 training samples" in capsys.readouterr().err


def test_a_known_set_is_found_in_any_data_folder_then_among_downloads(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DataError, match=r"put train-images.*into .*downloads/mnist.*manyhands data get mnist"):
        load("mnist")
    make.mnist(home / "downloads" / "mnist")
    assert load("mnist").source == str(home / "downloads" / "mnist")
    make.mnist(tmp_path / "b" / "mnist")
    monkeypatch.setenv("MANYHANDS_DATA", f"{tmp_path / 'a'}:{tmp_path / 'b'}")
    assert load("mnist").source == str(tmp_path / "b" / "mnist")


def test_kaggle_sets_say_where_to_log_in() -> None:
    with pytest.raises(DataError, match=r"put train.zip into .*login"):
        load("dogs-vs-cats")


def test_an_unknown_name_lists_what_there_is() -> None:
    with pytest.raises(DataError, match=r"did you mean 'mnist'.*tweets.*path.*synthetic:"):
        load("mnits")


def test_a_path_of_no_known_format(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.doc").write_text("?")
    for name in ("empty", "notes.doc"):
        with pytest.raises(DataError, match="no format that can be read"):
            load(str(tmp_path / name))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (DataOptions(size=0), "data.size is 0"),
        (DataOptions(image_size=-1), "data.image_size is -1"),
        (DataOptions(validation=1.0), "data.validation is 1.0"),
        (DataOptions(vocabulary=2), "data.vocabulary is 2"),
        (DataOptions(image_size=32), "image_size 32 is for image files; .* is 5x6 already"),
    ],
)
def test_options_that_cannot_be_obeyed(tmp_path: Path, options: DataOptions, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load(str(make.mnist(tmp_path / "set")), options)
