"""Of the ranks that another launcher has started one says why they failed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import sys
from pathlib import Path
from manyhands.comm.rendezvous import join; from manyhands.comm.ranks.rank_info import place
from manyhands.comm.launch.error_reporting import speaks
from manyhands.errors import RankError, RankLeft
import torch.distributed as dist

folder, failing, kind = sys.argv[1:]
here = place()
join(here, "gloo")
if str(here.rank) in failing.split(","):
    speaking = speaks(RankLeft("it has left") if kind == "left" else RankError("it does not work"))
    Path(folder, str(here.rank)).write_text(str(speaking))
dist.barrier()
"""


@pytest.mark.parametrize(
    ("failing", "kind", "speaking"),
    [
        ("0,1", "own", {"0": "True", "1": "False"}),
        ("1", "own", {"1": "True"}),  # the first knows of nothing
        ("1", "left", {"1": "False"}),
    ],
)
def test_one_speaks(tmp_path: Path, failing: str, kind: str, speaking: dict[str, str]) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "said").mkdir()
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*command, str(tmp_path / "script.py"), str(tmp_path / "said"), failing, kind],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert {path.name: path.read_text() for path in (tmp_path / "said").iterdir()} == speaking
