"""Optimizer state: nested state dictionaries as flat tensors by name, and back, for safetensors files."""

from typing import Any

from torch import Tensor


def flat(state: dict[str, Any]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """An optimizer's state as named tensors, and the rest as JSON values."""
    tensors: dict[str, Tensor] = {}
    scalars: dict[str, Any] = {}
    for number, values in state["state"].items():
        for key, value in values.items():
            (tensors if isinstance(value, Tensor) else scalars)[f"state.{number}.{key}"] = value
    groups = [
        {key: float(value) if isinstance(value, Tensor) else value for key, value in group.items()}
        for group in state["param_groups"]
    ]
    return tensors, {"scalars": scalars, "groups": groups}


def nested(tensors: dict[str, Tensor], rest: dict[str, Any]) -> dict[str, Any]:
    """The inverse of `_flat`."""
    state: dict[int, dict[str, Any]] = {}
    for name, value in {**tensors, **rest["scalars"]}.items():
        if name.startswith("state."):
            _, number, key = name.split(".", 2)
            state.setdefault(int(number), {})[key] = value
    return {"state": state, "param_groups": rest["groups"]}
