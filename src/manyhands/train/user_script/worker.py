"""Worker: a rank that runs a user's script (`python -m manyhands.train.user_script.worker SCRIPT arguments…`)."""

import os
import runpy
import sys
from pathlib import Path

from manyhands.comm.ranks.rank_info import place
from manyhands.comm.rendezvous import leave
from manyhands.machine.process_setup import settle
from manyhands.plan.plan import Plan
from manyhands.train.user_script.launch import launched

INTERRUPTED = 130


def main() -> None:
    """Settle this process; then, and only then, run the script, which imports torch."""
    plan, here = launched(), place()
    assert plan is not None
    assert here is not None
    setup_process(plan, here.local_rank)
    del sys.argv[0]
    sys.path[0] = str(Path(sys.argv[0]).resolve().parent)  # as `python script.py` has it
    code = None
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        code = end.code
    except KeyboardInterrupt:
        os._exit(INTERRUPTED)  # at once, and without a word: the launcher has one
    if code not in (None, 0):
        sys.exit(code)
    leave()


def setup_process(plan: Plan, local_rank: int) -> None:
    cores = plan.cores[local_rank] if plan.cores else None
    settle(threads=plan.threads, cores=cores, allocator=plan.allocator or "default")
    if plan.device == "cuda":
        import torch

        torch.cuda.set_device(local_rank)  # so that "cuda" in the script is this rank's own
    else:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # so that the script finds no GPU to prefer


if __name__ == "__main__":
    main()
