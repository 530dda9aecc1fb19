"""mpi: a process group over mpi4py, since PyTorch's wheels carry no MPI.

Data moves as bytes, of whatever type; only reductions need a type that MPI knows. Every call is begun and then
asked for, so that it can time out.

MPICH keeps its shared memory under a name until the end, and leaves it behind when ranks are killed. Once all have
mapped it nobody needs the name any more: it is taken away.
"""

import os
import sys
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from manyhands.comm.backends.base import Finish, Group
from manyhands.comm.backends.mpich_memory import forget_names
from manyhands.comm.backends.reduction import mean, name_of
from manyhands.comm.backends.spin_wait import wait_until
from manyhands.comm.ranks.status_files import ended, peer_exited
from manyhands.comm.ranks.timeouts import waited
from manyhands.compat import Store
from manyhands.errors import InputError, MissingPackage

TORCH_NAME = "mpi4py"  # torch keeps "mpi" for an MPI of its own, which its wheels lack

# Half precision is added up in fp32; MPI's logical type is not numpy's.
WIDER = {torch.bfloat16: torch.float32, torch.float16: torch.float32, torch.bool: torch.uint8}


def register() -> None:
    """Make the backend known to torch.distributed; again and again does no harm."""
    _mpi()
    if TORCH_NAME not in dist.Backend.backend_list:
        dist.Backend.register_backend(TORCH_NAME, MpiGroup, devices=["cpu"])


def _mpi() -> Any:
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise MissingPackage(f"backend 'mpi' needs mpi4py and an MPI: pip install mpi4py mpich ({error})") from None
    return MPI


def check_world(world: int) -> None:
    """Ranks that mpirun has not started know nothing of each other, each alone in its MPI."""
    if (known := _mpi().COMM_WORLD.size) < world:
        forget_names()
        raise InputError(
            f"backend=mpi needs mpirun: MPI knows {known} of {world} ranks here; start them by mpirun -n {world}, "
            "or say backend=gloo"
        )


def abort_on_error() -> None:
    """End all ranks when one fails: they would else wait for it. To be called once the group is there."""
    before = sys.excepthook  # torch's, which shows the rank

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        before(kind, error, trace)
        sys.stderr.flush()
        time.sleep(0.5)  # mpirun drops what a rank writes just before it aborts
        _mpi().COMM_WORLD.Abort(1)

    sys.excepthook = hook


class MpiGroup(Group):
    """Ranks that mpirun started."""

    name = "mpi"

    def __init__(self, store: Store, rank: int, world: int, timeout: timedelta) -> None:
        super().__init__(rank, world)
        self.store, self.mpi, self.timeout = store, _mpi(), timeout.total_seconds()
        everyone = self.mpi.COMM_WORLD
        store.set(str(rank), str(everyone.rank))
        members = [int(store.get(str(each))) for each in range(world)]
        forget_names()
        self.crowded = world > len(os.sched_getaffinity(0))
        self.comm = everyone.Create_group(everyone.group.Incl(members))

    def meet(self) -> None:
        self._finish(self.comm.Ibarrier(), "barrier")

    def reduce_row(self, row: Tensor, op: Any, root: int | None) -> None:
        given = row.to(WIDER.get(row.dtype, row.dtype))
        result = torch.empty_like(given)
        operation = self._operation(op, row.dtype)
        if root is None:
            self._finish(self.comm.Iallreduce(given.numpy(), result.numpy(), operation), "all_reduce")
        else:
            self._finish(self.comm.Ireduce(given.numpy(), result.numpy(), operation, root), "reduce")
        if root in (None, self.index):
            row.copy_(mean(result, self.world) if name_of(op) == "AVG" else result)

    def sum_later(self, row: Tensor) -> tuple[Callable[[], bool], Finish]:
        """Begin to add a row up, in place; gives what asks whether that has ended, and what waits for it."""
        request = self.comm.Iallreduce(self.mpi.IN_PLACE, row.numpy(), self.mpi.SUM)
        return request.Test, lambda: self._finish(request, "all_reduce")

    def broadcast_row(self, row: Tensor, root: int) -> None:
        self._finish(self.comm.Ibcast(_bytes(row), root), "broadcast")

    def gather_rows(self, rows: Sequence[Tensor], row: Tensor, root: int | None) -> None:
        joined = torch.empty(len(rows) * row.numel(), dtype=row.dtype)
        if root is None:
            self._finish(self.comm.Iallgather(_bytes(row), _bytes(joined)), "all_gather")
        else:
            self._finish(self.comm.Igather(_bytes(row), _bytes(joined) if rows else None, root), "gather")
        for number, each in enumerate(rows):
            each.copy_(joined[number * row.numel() : (number + 1) * row.numel()])

    def scatter_rows(self, row: Tensor, rows: Sequence[Tensor], root: int | None) -> None:
        joined = _bytes(torch.cat(list(rows))) if rows else None
        if root is None:
            self._finish(self.comm.Ialltoall(joined, _bytes(row)), "all_to_all")
        else:
            self._finish(self.comm.Iscatter(joined, _bytes(row), root), "scatter")

    def reduce_scatter_rows(self, row: Tensor, rows: Sequence[Tensor], op: Any) -> None:
        given = torch.cat(list(rows)).to(WIDER.get(row.dtype, row.dtype))
        result = torch.empty(row.numel(), dtype=given.dtype)
        operation = self._operation(op, row.dtype)
        self._finish(self.comm.Ireduce_scatter_block(given.numpy(), result.numpy(), operation), "reduce_scatter")
        row.copy_(mean(result, self.world) if name_of(op) == "AVG" else result)

    def send_row(self, row: Tensor, to: int, tag: int) -> Finish:
        request = self.comm.Isend(_bytes(row), to, tag)
        return lambda: self._finish(request, f"send to rank {to}", [to])

    def receive_row(self, row: Tensor, source: int, tag: int) -> Finish:
        request = self.comm.Irecv(_bytes(row), source, tag)
        return lambda: self._finish(request, f"receive from rank {source}", [source])

    def _operation(self, op: Any, dtype: torch.dtype) -> Any:
        """MPI's name for a reduction. Of truth values a sum is "any" and a product "all", as torch has it."""
        names = {"SUM": "SUM", "AVG": "SUM", "PRODUCT": "PROD"}
        if dtype == torch.bool:
            names = {"SUM": "MAX", "AVG": "MAX", "PRODUCT": "MIN"}
        name = name_of(op)
        return getattr(self.mpi, names.get(name, name))

    def _finish(self, request: Any, what: str, peers: Sequence[int] | None = None) -> None:
        """Wait for all ranks, or some."""

        def gone() -> list[int]:
            return [rank for rank in ended(self.world) if peers is None or rank in peers]

        if not wait_until(request.Test, self.timeout, crowded=self.crowded, in_vain=lambda: bool(gone())):
            if ranks := gone():
                raise peer_exited(ranks, self.index, what)
            raise waited(self.store, self.index, self.world, what, self.timeout)


def _bytes(row: Tensor) -> Any:
    return row.view(torch.uint8).numpy()
