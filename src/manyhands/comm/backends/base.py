"""Base: what torch.distributed asks of a process group, brought down to a few operations on rows of elements.

A row is a contiguous tensor of one dimension. A backend of ours gives the eight operations below; names,
options, shapes and tensors that are not contiguous are dealt with here. Collectives end before they return.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.futures import Future

from manyhands.compat import create_work_from_future
from manyhands.errors import RankError

Finish = Callable[[], None]


_Base: Any = dist.ProcessGroup  # whose stubs promise more ways to call each method than torch uses


class Group(_Base):  # type: ignore[misc]
    """A process group in Python. Its methods carry the names that torch calls, of 2.11 and of 2.13."""

    name: str

    def __init__(self, rank: int, world: int) -> None:
        super().__init__(rank, world)
        self.index, self.world = rank, world
        self.label = self.purpose = ""

    def getBackendName(self) -> str:
        return self.name

    # Torch keeps these two with a group's C++ backends, of which there are none here.

    def setGroupName(self, name: str) -> None:
        self.label = name

    def getGroupName(self) -> str:
        return self.label

    def setGroupDesc(self, purpose: str) -> None:
        self.purpose = purpose

    def getGroupDesc(self) -> str:
        return self.purpose

    # What a backend gives.

    def meet(self) -> None:
        raise NotImplementedError

    def reduce_row(self, row: Tensor, op: Any, root: int | None) -> None:
        """In place, at the root or (None) everywhere; elsewhere the row is left alone."""
        raise NotImplementedError

    def broadcast_row(self, row: Tensor, root: int) -> None:
        raise NotImplementedError

    def gather_rows(self, rows: Sequence[Tensor], row: Tensor, root: int | None) -> None:
        """`rows` is empty where nothing is wanted."""
        raise NotImplementedError

    def scatter_rows(self, row: Tensor, rows: Sequence[Tensor], root: int | None) -> None:
        """Into `row` the root's row for this rank; with root None every rank's, one after another."""
        raise NotImplementedError

    def reduce_scatter_rows(self, row: Tensor, rows: Sequence[Tensor], op: Any) -> None:
        raise NotImplementedError

    def send_row(self, row: Tensor, to: int, tag: int) -> Finish:
        raise NotImplementedError

    def receive_row(self, row: Tensor, source: int, tag: int) -> Finish:
        raise NotImplementedError

    # What torch calls.

    def barrier(self, opts: Any = None) -> Any:
        self.meet()
        return _done([])

    def allreduce(self, tensors: Any, opts: Any = None) -> Any:
        tensors = [tensors] if isinstance(tensors, Tensor) else tensors
        for tensor in tensors:
            with _rows(tensor) as (row,):
                self.reduce_row(row, _op(opts), None)
        return _done(tensors)

    allreduce_coalesced = allreduce

    def reduce(self, tensors: list[Tensor], opts: Any) -> Any:
        for tensor in tensors:
            with _rows(tensor) as (row,):
                self.reduce_row(row, _op(opts), opts.rootRank)
        return _done(tensors)

    def broadcast(self, tensors: list[Tensor], opts: Any) -> Any:
        for tensor in tensors:
            with _rows(tensor) as (row,):
                self.broadcast_row(row, opts.rootRank)
        return _done(tensors)

    def allgather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any = None) -> Any:
        for tensors, tensor in zip(outputs, inputs, strict=True):
            self._even([*tensors, tensor], "all_gather")
            with _rows(*tensors) as rows:
                self.gather_rows(rows, _row(tensor), None)
        return _done(outputs)

    def allgather_coalesced(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any = None) -> Any:
        for tensors, tensor in zip(zip(*outputs, strict=True), inputs, strict=True):
            self.allgather([list(tensors)], [tensor])
        return _done(outputs)

    def all_gather_single(self, output: Tensor, tensor: Tensor, opts: Any = None) -> Any:
        with _rows(output) as (row,):
            self.gather_rows(self._split(row), _row(tensor), None)
        return _done([output])

    def all_gather_single_coalesced(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None) -> Any:
        for output, tensor in zip(outputs, inputs, strict=True):
            self.all_gather_single(output, tensor)
        return _done(outputs)

    def gather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any) -> Any:
        for position, tensor in enumerate(inputs):
            tensors = outputs[position] if self.index == opts.rootRank else []
            self._even([*tensors, tensor], "gather")
            with _rows(*tensors) as rows:
                self.gather_rows(rows, _row(tensor), opts.rootRank)
        return _done(outputs)

    def scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any) -> Any:
        for position, output in enumerate(outputs):
            tensors = inputs[position] if self.index == opts.rootRank else []
            self._even([*tensors, output], "scatter")
            with _rows(output) as (row,):
                self.scatter_rows(row, [_row(tensor) for tensor in tensors], opts.rootRank)
        return _done(outputs)

    def reduce_scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any = None) -> Any:
        for output, tensors in zip(outputs, inputs, strict=True):
            self._even([*tensors, output], "reduce_scatter")
            with _rows(output) as (row,):
                self.reduce_scatter_rows(row, [_row(tensor) for tensor in tensors], _op(opts))
        return _done(outputs)

    def reduce_scatter_single(self, output: Tensor, tensor: Tensor, opts: Any = None) -> Any:
        with _rows(output) as (row,):
            self.reduce_scatter_rows(row, self._split(_row(tensor)), _op(opts))
        return _done([output])

    def reduce_scatter_single_coalesced(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None) -> Any:
        for output, tensor in zip(outputs, inputs, strict=True):
            self.reduce_scatter_single(output, tensor, opts)
        return _done(outputs)

    def alltoall(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None) -> Any:
        self._even([*outputs, *inputs], "all_to_all")
        joined = torch.empty(self.world * inputs[0].numel(), dtype=inputs[0].dtype)
        self.scatter_rows(joined, [_row(tensor) for tensor in inputs], None)
        for output, row in zip(outputs, self._split(joined), strict=True):
            output.detach().copy_(row.view(output.shape))
        return _done(outputs)

    def all_to_all_single(self, output: Tensor, tensor: Tensor, out: Any, into: Any, opts: Any = None) -> Any:
        self._even([output, tensor], "all_to_all")
        if len({*(out or ()), *(into or ())}) > 1:
            raise RankError(f"all_to_all on backend {self.name} needs equal parts, not {out or into}")
        with _rows(output) as (row,):
            self.scatter_rows(row, self._split(_row(tensor)), None)
        return _done([output])

    def send(self, tensors: list[Tensor], to: int, tag: int = 0) -> Any:
        return Transfer([self.send_row(_row(tensor), to, tag) for tensor in tensors])

    def recv(self, tensors: list[Tensor], source: int, tag: int = 0) -> Any:
        rows = [_row(tensor) for tensor in tensors]
        finishes = [self.receive_row(row, source, tag) for row in rows]
        return Transfer([*finishes, lambda: _back(tensors, rows)])

    # Names of torch 2.11.
    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single

    def _split(self, row: Tensor) -> list[Tensor]:
        share, rest = divmod(row.numel(), self.world)
        if rest:
            raise RankError(f"rank {self.index}: {row.numel()} elements do not divide among {self.world} ranks")
        return [row[rank * share : (rank + 1) * share] for rank in range(self.world)]

    def _even(self, tensors: Sequence[Tensor], what: str) -> None:
        sizes = {tensor.numel() for tensor in tensors}
        if len(sizes) > 1:
            raise RankError(f"rank {self.index}: {what} needs tensors of one size, not {sorted(sizes)}")


class Transfer(dist.Work):
    """A message on its way."""

    def __init__(self, finishes: Sequence[Finish]) -> None:
        super().__init__()
        self.finishes = list(finishes)

    def wait(self, timeout: Any = None) -> bool:
        while self.finishes:
            self.finishes[0]()
            del self.finishes[0]
        return True


def _op(opts: Any) -> Any:
    return dist.ReduceOp.SUM if opts is None else opts.reduceOp


def _row(tensor: Tensor) -> Tensor:
    """The elements in one row: the tensor's own memory where it is contiguous, else a copy."""
    whole = tensor.detach().contiguous()
    return whole.as_strided((whole.numel(),), (1,))  # a view(-1) of one element or none may keep an odd stride


def _back(tensors: Sequence[Tensor], rows: Sequence[Tensor]) -> None:
    """Write copies that `_row` made back."""
    for tensor, row in zip(tensors, rows, strict=True):
        if not tensor.is_contiguous():
            tensor.detach().copy_(row.view(tensor.shape))


@contextmanager
def _rows(*tensors: Tensor) -> Iterator[list[Tensor]]:
    """The tensors as rows that may be written to."""
    rows = [_row(tensor) for tensor in tensors]
    yield rows
    _back(tensors, rows)


def _done(result: Any) -> Any:
    """The handle of an operation that has ended."""
    future: Future[Any] = Future()
    future.set_result(result)
    return create_work_from_future(future)
