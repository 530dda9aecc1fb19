"""Links between real ranks, by each backend; what cannot be measured is left out and said."""

import os
import shutil
from pathlib import Path

import pytest

from manyhands.comm import links as measure
from manyhands.comm import links_rank
from manyhands.comm.launch import mpirun
from manyhands.errors import MissingPackage, RankError
from manyhands.machine.detect import detect
from manyhands.progress import set_quiet

OPERATIONS = {
    "gloo": ["all_reduce", "send"],
    "shm": ["all_reduce", "all_reduce_in_place", "send"],
    "mpi": ["all_reduce", "send"],
}


@pytest.mark.parametrize("backend", OPERATIONS)
def test_links(backend: str) -> None:
    if backend == "mpi":
        pytest.importorskip("mpi4py", reason="mpi4py is not installed: pip install mpi4py mpich")
    links = measure.links(backend, 2, sorted(os.sched_getaffinity(0)), largest=4096, seconds=0.001)
    assert [link.operation for link in links] == OPERATIONS[backend]
    for link in links:
        assert (link.backend, link.ranks) == (backend, 2)
        assert [size for size, _ in link.points] == [4, 16, 64, 256, 1024, 4096]
        assert min(seconds for _, seconds in link.points) > 0
        assert link.latency_us >= 0
        assert link.gb_per_s > 0


def test_sizes_and_shares() -> None:
    assert measure.sizes(measure.LARGEST)[:2] == [4, 16]
    assert measure.sizes(measure.LARGEST)[-1] == 2**26
    assert [list(links_rank.share(range(8), rank, 3)) for rank in range(3)] == [[0, 1], [2, 3], [4, 5]]
    assert list(links_rank.share(range(2), 3, 4)) == [0, 1]


def test_what_is_missing_is_left_out_and_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    set_quiet(False)
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    assert "mpi" not in measure.backends(detect())
    assert "mpi is left out: backend 'mpi' needs mpi4py and mpirun: pip install mpi4py mpich" in capsys.readouterr().err
    with pytest.raises(MissingPackage):
        mpirun.find()


def test_ranks_that_fail_under_mpirun_are_told(tmp_path: Path) -> None:
    pytest.importorskip("mpi4py", reason="mpi4py is not installed: pip install mpi4py mpich")
    nowhere = ["mpi", str(tmp_path / "points.json"), "99999", "4", "0.001", "best"]  # a core that is not there
    with pytest.raises(RankError, match="Invalid argument"):
        mpirun.ranks("manyhands.comm.links_rank", nowhere, 2)
