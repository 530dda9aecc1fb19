"""Schema: all that turns a new file into a model's input and gives names to its outputs."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from manyhands.errors import DataError

Kind = Literal["image", "text", "table"]


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
            return cls(**{**value, **lists, "columns": columns})
        except (KeyError, TypeError) as error:
            raise DataError(
                f"not a schema ({error}): expected the data.json that manyhands wrote; make the run again"
            ) from error
