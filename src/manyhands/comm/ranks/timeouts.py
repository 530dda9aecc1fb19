"""Timeouts: which ranks a collective waited for in vain.

Where the backend itself cannot tell (gloo, MPI), a rank whose wait has timed out leaves a note in the store by which
the ranks met. Those that wait too do the same within a moment; whoever has left none is late.
"""

import contextlib
import threading
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

import torch.distributed as dist

from manyhands.comm.ranks.status_files import names
from manyhands.compat import Store, get_default_store
from manyhands.errors import RankError, RankLeft

MOMENT = 3.0  # seconds


def named(error: RuntimeError, timeout: float) -> RankError | None:
    """The error of a collective that timed out, as one that names the late ranks, or that another rank has left.

    None for any other error.
    """
    if not dist.is_initialized():
        return None
    if "by peer" in str(error):  # closed, or reset
        return RankLeft(f"another rank has ended while rank {dist.get_rank()} waits in {_collective(error)}")
    if not is_timeout(error):
        return None
    return waited(get_default_store(), dist.get_rank(), dist.get_world_size(), _collective(error), timeout)


def is_timeout(error: RuntimeError) -> bool:
    """As gloo and torch's stores tell it."""
    told = str(error).lower()
    return any(words in told for words in ("timed out", "timeout waiting", "wait timeout"))


def waited(store: Store, rank: int, world: int, what: str, timeout: float) -> RankError:
    return missed(without_note(store, rank, world), rank, what, timeout)


def missed(late: Sequence[int], rank: int, what: str, timeout: float) -> RankError:
    return RankError(f"{names(late) or 'another rank'} did not come: rank {rank} waited {timeout:.0f} s in {what}")


def without_note(store: Store, rank: int, world: int) -> list[int]:
    late = [0]  # which keeps the store, should that not answer

    def ask() -> None:
        nonlocal late
        with contextlib.suppress(RuntimeError):
            store.set(f"waits/{rank}", "")
            time.sleep(MOMENT)
            late = [each for each in range(world) if not store.check([f"waits/{each}"])]

    asking = threading.Thread(target=ask, daemon=True)  # torch's own limit does not hold for every call
    asking.start()
    asking.join(2 * MOMENT)
    return late


def _collective(error: BaseException) -> str:
    """The function of torch.distributed that was called; inside backward there is none, but one thing to wait for."""
    calls = [
        frame for frame in traceback.extract_tb(error.__traceback__) if "distributed_c10d" in Path(frame.filename).name
    ]
    return calls[-1].name if calls else "all_reduce of gradients"
