"""Tables: numbers, categories, missing values, the target; and Adult in its three forms."""

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from data import make
from manyhands.data.dataset import Dataset
from manyhands.data.load import load
from manyhands.data.schema import DataOptions
from manyhands.errors import DataError

HEADER = "age,colour,score,bought\n"
ROWS = [
    f"{20 + k % 7},{('red', 'blue', 'red')[k % 3]},{'?' if k == 4 else k / 2},{'yes' if k % 2 else 'no'}"
    for k in range(40)
]
TARGET = DataOptions(target="bought", validation=0)


def table(path: Path, rows: list[str] = ROWS, header: str = HEADER) -> str:
    path.write_text(header + "".join(f"{row}\n" for row in rows))
    return str(path)


def test_numbers_categories_and_missing_values(tmp_path: Path) -> None:
    dataset = load(table(tmp_path / "a.csv"), TARGET)
    age, colour, score = dataset.schema.columns
    assert (age.kind, colour.kind, score.kind) == ("numeric", "category", "numeric")
    assert colour.levels == ("red", "blue")
    assert dataset.schema.classes == ("no", "yes")
    assert dataset.schema.shape == (1 + 3 + 1 + score.missing,)
    assert (len(dataset.train), len(dataset.test)) == (32, 8)
    train = dataset.train.inputs[:32]
    np.testing.assert_allclose(train[:, 0].mean(), 0, atol=1e-6)
    np.testing.assert_allclose(train[:, 0].std(), 1, atol=1e-6)
    np.testing.assert_array_equal(dataset.train.inputs[:, 1:4].sum(axis=1), 1)


@pytest.mark.parametrize("missing", ["", "?", "NA", "nan", " NaN "])
def test_a_missing_number_is_the_median_and_says_so(tmp_path: Path, missing: str) -> None:
    rows = [f"{missing if k < 4 else k},{k % 2}" for k in range(40)]
    dataset = load(table(tmp_path / "a.csv", rows, "x,y\n"), DataOptions(target="y", validation=0))
    (column,) = dataset.schema.columns
    assert column.missing
    filled = dataset.train.inputs[dataset.train.inputs[:, 1] == 1]
    assert len(filled) == 4
    np.testing.assert_allclose(filled[:, 0], (column.fill - column.mean) / column.std, rtol=1e-6)


def test_rare_and_new_levels_are_other(tmp_path: Path) -> None:
    rows = [f"level{k % 80},{k % 2}" for k in range(400)]
    dataset = load(table(tmp_path / "a.csv", rows, "x,y\n"), DataOptions(target="y"))
    assert dataset.schema.shape == (65,)
    assert dataset.train.inputs[:, 64].sum() >= 16
    np.testing.assert_array_equal(dataset.train.inputs.sum(axis=1), 1)


@pytest.mark.parametrize(("separator", "pack"), [(",", True), (";", False), ("\t", False)])
def test_other_separators_and_packed(tmp_path: Path, separator: str, pack: bool) -> None:
    text = "\ufeff" + (HEADER + "\n".join(ROWS) + "\n\n").replace(",", separator)
    path = tmp_path / ("b.csv.gz" if pack else "b.csv")
    path.write_bytes(gzip.compress(text.encode()) if pack else text.encode())
    plain = load(table(tmp_path / "a.csv"), TARGET)
    np.testing.assert_array_equal(load(str(path), TARGET).train.inputs, plain.train.inputs)


def test_classes_that_are_numbers_are_in_their_order(tmp_path: Path) -> None:
    rows = [f"{k},{k % 12}" for k in range(60)]
    dataset = load(table(tmp_path / "a.csv", rows, "x,y\n"), DataOptions(target="y"))
    assert dataset.schema.classes == tuple(map(str, range(12)))


@pytest.mark.parametrize(
    ("rows", "header", "target", "message"),
    [
        (ROWS, HEADER, None, r"data.target=NAME with one of age, colour, score, bought"),
        (ROWS, HEADER, "bougth", "no column 'bougth': did you mean 'bought'"),
        ([*ROWS, "1,2"], HEADER, "bought", "2 fields in row 41 and 4 columns"),
        ([*ROWS, "1,red,2,"], HEADER, "bought", "no 'bought' in row 41"),
        ([], HEADER, "bought", "has no rows"),
        ([], "", "bought", "has no rows"),
        (ROWS, "age,age,b,bought\n", "bought", "two columns of one name"),
        ([f"{k},{k}.5" for k in range(40)], "x,y\n", "y", "40 different values in 40 rows"),
        (["1,a"] * 9, "x,y\n", "y", "1 different values"),
        (["a", "b"] * 9, "y\n", "y", "no column beside 'y'"),
    ],
)
def test_what_does_not_fit_is_named(
    tmp_path: Path, rows: list[str], header: str, target: str | None, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        load(table(tmp_path / "a.csv", rows, header), DataOptions(target=target))


def test_adult_is_the_same_in_all_its_forms(
    real_folder: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """UCI's own test file has a comment line and a full stop after each class."""
    folder = real_folder("adult")
    raw = {name: gzip.decompress((folder / f"{name}.gz").read_bytes()) for name in ("adult.data", "adult.test")}
    stops = raw["adult.test"].rstrip(b"\n").replace(b"\n", b".\n") + b".\n\n"
    make.tree(tmp_path / "uci", {**raw, "adult.test": b"|1x3 Cross validator\n" + stops})
    one, two = load("adult"), load(str(tmp_path / "uci"))
    assert two.schema.classes == ("<=50K", ">50K")
    np.testing.assert_array_equal(one.train.inputs, two.train.inputs)
    np.testing.assert_array_equal(one.train.labels, two.train.labels)
    np.testing.assert_array_equal(one.test.index, two.test.index)


def test_adult_is_learned_as_well_as_its_readme_says(real: Callable[..., Dataset]) -> None:
    dataset = real("adult", size=8_000, validation=0.0)
    train, test = dataset.train, dataset.test
    model = LogisticRegression(solver="newton-cholesky").fit(train.inputs[train.index], train.labels[train.index])
    assert model.score(test.inputs[test.index], test.labels[test.index]) == pytest.approx(0.853, abs=0.006)


def test_half_of_adult_is_refused(tmp_path: Path) -> None:
    header = "age,income\n"
    make.tree(tmp_path / "adult", {"adult.csv": (header + "1,a\n2,b\n").encode()})
    with pytest.raises(DataError, match="has 2 rows: more than the 32,561"):
        load(str(tmp_path / "adult"))
