"""Worker: carries out the order in a run folder, in a process of its own (`python -m manyhands.train.worker RUN`)."""

import sys
from pathlib import Path

from manyhands.errors import ManyhandsError
from manyhands.progress import set_quiet
from manyhands.runs import run_folder
from manyhands.train import launch


def main(folder: Path) -> int:
    """How it ended is in run.json; the exit code says so too."""
    set_quiet(True)
    try:
        launch.execute(run_folder.load(folder))
    except ManyhandsError as error:
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
