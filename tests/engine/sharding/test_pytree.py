"""Tensors in what functions are given and give."""

from collections import OrderedDict
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

from manyhands.engine.sharding.pytree import mapped, tensors


class Pair(NamedTuple):
    one: Any
    two: Any


ONE, TWO = torch.ones(2), torch.zeros(3)


@pytest.mark.parametrize(
    "value",
    [
        ONE,
        (ONE, 1, None),
        [ONE, [TWO, "a"], 2.5],
        {"a": ONE, "b": (TWO, True)},
        Pair(ONE, [TWO]),
        OrderedDict(a=ONE, b=TWO),
        ((), {}),
        slice(0, 1),
    ],
    ids=str,
)
def test_as_torch_does_it(value: Any) -> None:
    found = tensors(Tensor, value)
    known = [each for each in tree_leaves(value) if isinstance(each, Tensor)]
    assert [id(each) for each in found] == [id(each) for each in known]
    changed, expected = (each(Tensor, id, value) for each in (mapped, tree_map_only))
    assert changed == expected
    assert type(changed) is type(expected)
