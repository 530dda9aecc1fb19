"""A rank of the tests' pool: takes the name of a case, runs it in a fresh group, and says how it went."""

import sys
import traceback
from datetime import timedelta
from multiprocessing.connection import Connection

import cases
import torch
import torch.distributed as dist

from manyhands.comm import shm
from manyhands.comm.rank import die_with_parent


def serve(pipe: Connection) -> None:
    while True:
        name, backend, rank, world, store, timeout = pipe.recv()
        try:
            limit = timedelta(seconds=timeout)
            file = dist.FileStore(store, world)
            dist.init_process_group(backend, store=file, rank=rank, world_size=world, timeout=limit)
            getattr(cases, name)(backend, rank, world)
            dist.barrier()
            pipe.send(None)
        except Exception:
            pipe.send(traceback.format_exc())
        finally:
            if dist.is_initialized():
                dist.destroy_process_group()


if __name__ == "__main__":
    die_with_parent()
    torch.set_num_threads(1)
    shm.register()
    try:
        serve(Connection(int(sys.argv[1])))
    except EOFError:
        sys.exit()
