"""A schema survives the way through JSON."""

import json

import pytest

from manyhands.data.schema import Column, Schema
from manyhands.errors import DataError

TABLE = Schema(
    "t",
    "table",
    (5,),
    ("no", "yes"),
    columns=(Column("a", "numeric", 1.5, 2.0, 1.0, missing=True), Column("b", "category", levels=("x", "y"))),
    target="c",
)
IMAGE = Schema("i", "image", (1, 28, 28), ("0", "1"), (33.3,), (78.5,))
TEXT = Schema("s", "text", (24,), ("a", "b"), vocabulary=("<pad>", "<unknown>", "❤"))


@pytest.mark.parametrize("schema", [TABLE, IMAGE, TEXT], ids=lambda schema: schema.kind)
def test_there_and_back(schema: Schema) -> None:
    assert Schema.from_json(json.loads(json.dumps(schema.to_json()))) == schema


def test_the_widths_of_columns_are_the_features() -> None:
    assert sum(column.width for column in TABLE.columns) == TABLE.shape[0]


@pytest.mark.parametrize("change", [{"colour": 1}, {"columns": [{"name": "a"}]}, {"columns": None}])
def test_what_is_no_schema_is_refused(change: dict) -> None:
    with pytest.raises(DataError, match="not a schema"):
        Schema.from_json({**IMAGE.to_json(), **change})
