"""Flat parameters: all parameters of a model in one row of memory, and an optimizer's state cut and joined along it."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from manyhands.errors import ModelError

ALIGNED = 64  # elements: every parameter begins on a cache line of its own


class FlatParameters:
    """Where each parameter lies in a row."""

    def __init__(self, model: nn.Module, *, buffers: bool = False) -> None:
        """`buffers`: running statistics lie behind the parameters."""
        self.parameters: list[Tensor] = [parameter for parameter in model.parameters() if parameter.requires_grad]
        if buffers:
            self.parameters += [buffer for buffer in model.buffers() if buffer.is_floating_point()]
        dtypes = {parameter.dtype for parameter in self.parameters}
        if len(dtypes) > 1:
            raise ModelError(f"parameters of several types ({', '.join(map(str, dtypes))}) cannot share memory yet")
        self.dtype = dtypes.pop()
        self.starts: list[int] = []
        self.size = 0
        for parameter in self.parameters:
            self.starts.append(self.size)
            self.size += -(-parameter.numel() // ALIGNED) * ALIGNED

    def row(self) -> Tensor:
        return torch.zeros(self.size, dtype=self.dtype)

    def view(self, row: Tensor, number: int) -> Tensor:
        """A parameter's place in a row, laid out in memory as the parameter is."""
        parameter = self.parameters[number]
        return row.as_strided(parameter.shape, parameter.stride(), row.storage_offset() + self.starts[number])

    def read(self, row: Tensor) -> None:
        """Copy the parameters' values into a row."""
        for number, parameter in enumerate(self.parameters):
            self.view(row, number).copy_(parameter.detach())

    def write(self, row: Tensor) -> None:
        """The other way."""
        for number, parameter in enumerate(self.parameters):
            parameter.detach().copy_(self.view(row, number))

    def move_in(self, row: Tensor) -> None:
        """Let the parameters be views of a row."""
        for number, parameter in enumerate(self.parameters):
            parameter.data = self.view(row, number)

    # An optimizer's state: of one parameter that is a part of a row, and of each parameter as one device has it.

    def joined(self, rows: Mapping[str, Any], groups: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """The state of each parameter from rows, one for each key; what is no row is the same for all."""
        whole: dict[int, dict[str, Any]] = {number: {} for number in range(len(self.parameters))}
        for key, value in rows.items():
            spread = isinstance(value, Tensor) and value.dim() > 0
            for number in whole:
                same = value.clone() if isinstance(value, Tensor) else value  # each counts its own steps
                whole[number][key] = self.view(value, number).clone() if spread else same
        return {
            "state": whole if rows else {},
            "param_groups": [{**group, "params": list(whole)} for group in groups],
        }

    def cut(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """The inverse: a row for each key."""
        rows: dict[str, Any] = {}
        known = {number: values for number, values in state["state"].items() if values}  # others were never used
        for key in next(iter(known.values()), {}):
            of = {number: values[key] for number, values in known.items()}
            if any(isinstance(value, Tensor) and value.dim() > 0 for value in of.values()):
                rows[key] = self.row()
                for number, value in of.items():
                    self.view(rows[key], number).copy_(value)
            else:
                rows[key] = next(iter(of.values()))
        return rows
