"""Values other than tensors come to the other ranks as they were; what cannot go as JSON is refused."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from manyhands.comm.ranks import objects

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda each: (
        st.lists(each, max_size=3)
        | st.lists(each, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.integers(), each, max_size=3)
    ),
    max_leaves=8,
)


def carried(value: object) -> object:
    return objects.decoded(torch.frombuffer(bytearray(objects.encoded(value)), dtype=torch.uint8))


@given(PLAIN)
def test_a_plain_value(value: object) -> None:
    assert carried(value) == value


def test_tensors_inside() -> None:
    value = {
        "rows": [torch.arange(6).reshape(2, 3), torch.tensor(1.5, dtype=torch.bfloat16)],
        "none": torch.empty(0, 3, dtype=torch.float64),
        "images": torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
        "odd": (torch.tensor([True, False, True]), torch.tensor([1.0], dtype=torch.float64)),
        Path("a"): 1,
    }
    got = carried(value)
    assert list(got) == list(value)
    for mine, theirs in zip(
        [*value["rows"], value["none"], value["images"], *value["odd"]],
        [*got["rows"], got["none"], got["images"], *got["odd"]],
        strict=True,
    ):
        assert mine.dtype == theirs.dtype
        assert torch.equal(mine, theirs)


def test_what_would_have_to_be_executed_is_refused() -> None:
    with pytest.raises(TypeError, match="a object cannot go"):
        objects.encoded({"x": object()})


def values(backend: str, rank: int, world: int) -> None:
    own = {"rank": rank, "row": torch.full((rank,), rank)}
    all_of_them = objects.gather(own)
    assert [each["rank"] for each in all_of_them] == list(range(world))
    assert [each["row"].tolist() for each in all_of_them] == [[each] * each for each in range(world)]
    assert objects.broadcast(own)["rank"] == 0


@pytest.mark.parametrize("backend", ["gloo", "shm", "mpi"])
def test_over_ranks(pools, backend: str) -> None:
    pools(backend).run("comm.ranks.test_objects:values", backend, 3)
