"""A rank for the tests of the launcher: `faulty.py mode backend folder`."""

import os
import signal
import sys
from pathlib import Path

from manyhands.comm.ranks.rank_info import place
from manyhands.comm.rendezvous import join

mode, backend, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
here = place()
assert here is not None
(folder / f"{here.rank}-{here.restarts}.pid").write_text(str(os.getpid()))
if mode == "linger":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
join(here, backend, timeout=20)

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

total = torch.ones(1)
dist.all_reduce(total)
assert total.item() == here.world
(folder / f"{here.rank}.met").touch()
if here.rank == 1:
    if mode == "raise":
        raise ValueError("a broken picture")
    if mode == "kill" or (mode == "kill once" and here.restarts == 0):
        os.kill(os.getpid(), signal.SIGKILL)
if mode == "linger":
    signal.alarm(60)  # should nobody end it
    signal.pause()
dist.all_reduce(total)
dist.destroy_process_group()
