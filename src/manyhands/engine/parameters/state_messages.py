"""State messages: optimizer state and buffers as flat tensors, as workers and servers send them."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn


def one_state(rows: Mapping[str, Any], groups: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The state of an optimizer whose one parameter is a part of the row."""
    return {"state": {0: dict(rows)} if rows else {}, "param_groups": [{**group, "params": [0]} for group in groups]}


def told_state(state: Mapping[str, Any], groups: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], list[Tensor]]:
    """The state of one row as a message: rows apart from what is the same for all elements."""
    rows = {key: value for key, value in state.items() if isinstance(value, Tensor) and value.dim()}
    same = {key: [_plain(value), isinstance(value, Tensor)] for key, value in state.items() if key not in rows}
    plain = [{key: _plain(value) for key, value in group.items()} for group in groups]
    return {"keys": list(rows), "same": same, "groups": plain}, [row.detach().clone() for row in rows.values()]


def state_of(head: Mapping[str, Any], rows: Sequence[Tensor]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The inverse: the state of one row, and the optimizer's groups."""
    same = {key: torch.tensor(value) if was_tensor else value for key, (value, was_tensor) in head["same"].items()}
    return {**same, **dict(zip(head["keys"], rows, strict=True))}, head["groups"]


def _plain(value: Any) -> Any:
    return float(value) if isinstance(value, Tensor) else value


def buffers_of(model: nn.Module) -> list[Tensor]:
    """Running statistics, as one row each; counts apart."""
    return [each.detach().reshape(-1) for each in model.buffers() if each.is_floating_point()]


def set_buffers(model: nn.Module, rows: list[Tensor]) -> None:
    for each, row in zip((each for each in model.buffers() if each.is_floating_point()), rows, strict=True):
        each.copy_(row.view(each.shape))


def mean_of(rows: list[list[Tensor]]) -> list[Tensor]:
    """Of each worker's rows."""
    return [torch.stack(each).mean(0) for each in zip(*rows, strict=True)]
