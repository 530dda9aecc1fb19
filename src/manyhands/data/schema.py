"""Schema: all that turns a new file into a model's input and gives names to its outputs."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from manyhands.errors import DataError

Kind = Literal["image", "text", "table"]
MOST = 10**9  # numbers along one dimension of a sample


@dataclass(frozen=True)
class Column:
    """One column of a table: how its raw text becomes features.

    A numeric column gives one feature, (value - mean) / std, and a second one that is 1 where the value is
    missing if `missing`. A category gives one feature for each level and a last one for all other values.
    """

    name: str
    kind: Literal["numeric", "category"]
    mean: float = 0.0
    std: float = 1.0
    fill: float = 0.0  # the median: stands in where the value is missing
    levels: tuple[str, ...] = ()
    missing: bool = False

    @property
    def width(self) -> int:
        """How many features the column gives."""
        return len(self.levels) + 1 if self.kind == "category" else 1 + self.missing


@dataclass(frozen=True)
class Schema:
    """What a data set's samples look like; saved in every run as data.json."""

    name: str
    kind: Kind
    shape: tuple[int, ...]  # one sample as the model sees it: (C, H, W), (L,) or (F,)
    classes: tuple[str, ...]  # in label order
    mean: tuple[float, ...] = ()  # per channel, in stored units (0..255); empty for text and table
    std: tuple[float, ...] = ()
    vocabulary: tuple[str, ...] = ()  # text: the token of each id; 0 is padding, 1 unknown
    columns: tuple[Column, ...] = ()  # table
    target: str = ""  # table

    def to_json(self) -> dict[str, Any]:
        """As a JSON value; `from_json` reads it back."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Schema":
        """The schema that `to_json` wrote."""
        try:
            columns = tuple(Column(**{**each, "levels": tuple(each["levels"])}) for each in value["columns"])
            lists = {key: tuple(each) for key, each in value.items() if isinstance(each, list | tuple)}
            return cls(**{**value, **lists, "columns": columns})._checked()
        except (KeyError, TypeError, AttributeError) as error:
            raise DataError(
                f"not a schema ({error}): expected the data.json that manyhands wrote; make the run again"
            ) from error

    def _checked(self) -> "Schema":
        """Itself; TypeError where a value is of another kind than this program writes."""
        words = (self.name, self.target, *self.classes, *self.vocabulary, *(each.name for each in self.columns))
        words += tuple(level for each in self.columns for level in each.levels)
        numbers = (*self.mean, *self.std, *(each for of in self.columns for each in (of.mean, of.std, of.fill)))
        if (
            self.kind not in get_args(Kind)
            or not all(isinstance(each, str) for each in words)
            or not all(type(each) in (int, float) for each in numbers)
            or not all(type(each) is int and 0 < each <= MOST for each in self.shape)
        ):
            raise TypeError("a value of another kind")
        return self


@dataclass(frozen=True)
class DataOptions:
    """How a source is read and split."""

    size: int | None = None  # first N training samples, before validation is taken out
    test_size: int | None = None  # so many test samples, spread evenly over them
    target: str | None = None  # the class column of a CSV
    image_size: int | None = None  # short side after scaling; then the centre is cut out
    length: int | None = None  # tokens per text
    vocabulary: int = 20_000  # most tokens kept
    validation: float = 0.05  # share of the training set, where the source brings no validation part
    seed: int = 0  # of the validation split
