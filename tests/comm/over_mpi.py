"""A rank under mpirun: finds its place, joins, runs every case of the contract, and writes what failed."""

import json
import sys
import traceback
from pathlib import Path

import cases
import torch
import torch.distributed as dist

from manyhands.comm.rank import join, place

torch.set_num_threads(1)
here = place()
assert here is not None
join(here, "mpi", timeout=30)
failed = {}
for case in cases.CONTRACT:
    try:
        case("mpi", here.rank, here.world)
    except Exception:
        failed[case.__name__] = traceback.format_exc()
        break  # the other ranks may be anywhere
    dist.barrier()
Path(sys.argv[1], f"{here.rank}.json").write_text(json.dumps(failed))
dist.destroy_process_group()
