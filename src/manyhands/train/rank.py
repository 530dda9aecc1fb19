"""Rank: one of the processes that carry out a run together (`python -m manyhands.train.rank RUN [--resume]`)."""

import sys
from pathlib import Path

from manyhands.comm.launch.bootstrap import done
from manyhands.comm.ranks.rank_info import place
from manyhands.progress import set_quiet
from manyhands.runs import run_folder
from manyhands.train.process import work


def main(folder: Path, resume: bool) -> None:
    """A restarted rank goes on from the last checkpoint."""
    set_quiet(True)  # the launcher shows the progress
    here = place()
    work(run_folder.load(folder), resume=resume or (here is not None and here.restarts > 0))


if __name__ == "__main__":
    main(Path(sys.argv[1]), "--resume" in sys.argv)
    done()
