"""Rendezvous: a rank joins its process group, and leaves it."""

import gc
import os
import sys
from datetime import timedelta

from manyhands.comm.ranks.rank_info import STORES, Place
from manyhands.comm.ranks.status_files import note
from manyhands.errors import InputError, MissingPackage, choices

BACKENDS = ("gloo", "nccl", "shm", "mpi")


def join(place: Place, backend: str = "gloo", timeout: float = 300.0) -> None:
    """Meet the other ranks; from here on torch.distributed works. `timeout`, in seconds, holds for every collective."""
    if backend not in BACKENDS:
        raise InputError(f"backend '{backend}' is not known: {choices(backend, BACKENDS)}")
    import torch.distributed as dist

    if dist.is_initialized():
        return
    limit = timedelta(seconds=timeout)
    if "MASTER_ADDR" in os.environ and not os.environ.get(STORES):
        from manyhands.comm.ranks import many_hosts

        store = many_hosts.store(place, limit)
    else:
        if place.local_world != place.world:
            raise InputError(f"MASTER_ADDR is not set: {place.world} ranks on several hosts need the one of rank 0")
        from manyhands.comm.ranks.one_host import file_store

        store = file_store(place.restarts, place.world, limit)
    if backend == "mpi":
        from manyhands.comm.backends import mpi

        mpi.register()
        mpi.check_world(place.world)
    if backend == "shm":
        from manyhands.comm.backends import shm

        shm.register()
    if backend == "nccl" and not dist.is_nccl_available():
        raise MissingPackage("backend 'nccl' needs a build of PyTorch for CUDA")
    name = mpi.TORCH_NAME if backend == "mpi" else backend
    try:
        dist.init_process_group(name, store=store, rank=place.rank, world_size=place.world, timeout=limit)
    except RuntimeError as error:
        from manyhands.comm.ranks import timeouts  # which imports torch

        if not timeouts.is_timeout(error):
            raise
        raise timeouts.waited(store, place.rank, place.world, "init_process_group", timeout) from error
    if backend == "mpi":
        mpi.abort_on_error()


def leave() -> None:
    """Say that this rank has ended; take the group down where there is one, and with it its threads.

    One that has yet to let go of a tensor when Python ends aborts the process (gloo, in 1 of 15 short scripts).
    Models hold the group too, in cycles.
    """
    note("ended", "")  # first: whoever waits for this rank must not think that it was lost
    if "torch" in sys.modules:
        import torch.distributed as dist

        if dist.is_available() and dist.is_initialized():
            gc.collect()
            dist.destroy_process_group()
