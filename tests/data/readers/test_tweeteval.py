"""Text: lines and labels of TweetEval's files."""

from pathlib import Path

import pytest

from data import make
from manyhands.data.dataset import Dataset
from manyhands.data.load import load
from manyhands.data.schema import DataOptions
from manyhands.errors import DataError

ROWS = {
    "train": [("I LOVE you\u2028so much", 1), ("rain again", 0), ("love love ❤", 1), ("", 0)],
    "val": [("love rain", 1)],
    "test": [("strange words", 0), ("rain rain", 0)],
}
MAPPING = "0\t🌧\t_rain_\t\n1\t❤\t_red_heart_\t\n"


def words(dataset: Dataset, row: int) -> list[str]:
    return [dataset.schema.vocabulary[number] for number in dataset.train.inputs[row] if number]


def test_texts_become_ids_of_training_words(tmp_path: Path) -> None:
    dataset = load(str(make.tweets(tmp_path / "set", ROWS, MAPPING)))
    assert dataset.schema.classes == ("rain", "red_heart")
    assert dataset.schema.shape == (8,)
    assert dataset.schema.vocabulary[:3] == ("<pad>", "<unknown>", "love")
    assert words(dataset, 0) == ["i", "love", "you", "so", "much"], "a line separator does not end a text"
    assert words(dataset, 3) == ["<unknown>"]
    assert words(dataset, 5) == ["<unknown>", "<unknown>"], "words of the test part stay unknown"
    assert [len(part) for part in (dataset.train, dataset.validation, dataset.test)] == [4, 1, 2]
    assert dataset.train.labels.tolist() == [1, 0, 1, 0, 1, 0, 0]


def test_length_and_vocabulary_can_be_set(tmp_path: Path) -> None:
    dataset = load(str(make.tweets(tmp_path / "set", ROWS)), DataOptions(length=2, vocabulary=3))
    assert dataset.schema.vocabulary == ("<pad>", "<unknown>", "love")
    assert dataset.train.inputs[0].tolist() == [1, 2]


def test_a_test_part_is_held_out_where_there_is_none(tmp_path: Path) -> None:
    dataset = load(str(make.tweets(tmp_path / "set", {"train": [(f"w{k}", k * 7 % 3) for k in range(50)]})))
    assert (len(dataset.train), len(dataset.validation), len(dataset.test)) == (38, 2, 10)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train_labels.txt": b"1\n0\n1\n"}, "4 train texts and 3 labels"),
        ({"train_labels.txt": b"1\n0\nx\n0\n"}, "'x' in line 3"),
        ({"train_labels.txt": b"1\n0\n2\n0\n"}, "the label 2: 0 to 1 are allowed"),
        ({"test_labels.txt": b"-1\n0\n"}, "the label -1: 0 to 1"),
        ({"train_text.txt": b"a\nb\n\xff\nd\n"}, "is not UTF-8 text"),
        ({"mapping.txt": b"1\ta\n2\tb\n"}, "numbers its classes 1, 2"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path: Path, change: dict[str, bytes], message: str) -> None:
    folder = make.tree(make.tweets(tmp_path / "set", ROWS, MAPPING), change)
    with pytest.raises(DataError, match=message):
        load(str(folder))


def test_missing_labels_are_named(tmp_path: Path) -> None:
    folder = make.tweets(tmp_path / "set", ROWS)
    (folder / "val_labels.txt").unlink()
    with pytest.raises(DataError, match=r"val_labels.txt.* is missing"):
        load(str(folder))
