"""Dense layers by Cannon's algorithm train what one device trains."""

from typing import Any

import pytest


@pytest.mark.parametrize("precision", ["fp32", "fp64"])
@pytest.mark.parametrize(
    ("model", "names"),
    [
        ("mlp", "dense1 dense2"),
        ("mlp", "dense1 dense2 output"),
        ("convnet", "dense"),
        ("transformer", "layers.0.dense.wide layers.0.dense.narrow"),
    ],
)
def test_cannon(pools: Any, model: str, names: str, precision: str) -> None:
    pools("gloo").run("numerics.cannon_split_cases:by_cannon", "gloo", 4, model, names, precision)
