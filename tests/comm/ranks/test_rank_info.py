"""A process finds its place by what torchrun, mpirun and srun say."""

import subprocess
import sys

import pytest

from manyhands.comm.ranks.rank_info import OTHERS, TORCHRUN, Place, place
from manyhands.comm.rendezvous import join
from manyhands.errors import InputError


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for names in (TORCHRUN, *OTHERS):
        for name in names:
            monkeypatch.delenv(name, raising=False)


def test_alone() -> None:
    assert place() is None


@pytest.mark.parametrize("names", [TORCHRUN, *OTHERS], ids=lambda names: names[0])
def test_each_launcher(monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]) -> None:
    for name, value in zip(names, ("3", "4", "1", "2"), strict=True):
        monkeypatch.setenv(name, value)
    assert place() == Place(rank=3, local_rank=1, world=4, local_world=2)


def test_restarts_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in zip((*TORCHRUN, "TORCHELASTIC_RESTART_COUNT"), ("0", "1", "0", "1", "2"), strict=True):
        monkeypatch.setenv(name, value)
    assert place() == Place(rank=0, local_rank=0, world=1, local_world=1, restarts=2)


def test_slurms_way_to_write_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in zip(OTHERS[2], ("3", "6", "1", "2(x3)"), strict=True):
        monkeypatch.setenv(name, value)
    assert place() == Place(rank=3, local_rank=1, world=6, local_world=2)


def test_one_task_may_launch_ranks_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in zip(OTHERS[2], ("0", "1", "0", "1"), strict=True):
        monkeypatch.setenv(name, value)
    assert place() is None


def test_join_refuses_what_it_does_not_know() -> None:
    with pytest.raises(InputError, match="backend 'glo' is not known: did you mean 'gloo'"):
        join(Place(0, 0, 1, 1), "glo")


def test_join_asks_for_the_address_on_several_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with pytest.raises(InputError, match="MASTER_ADDR is not set: 4 ranks on several hosts"):
        join(Place(0, 0, 4, 2), "gloo")


def test_the_way_to_a_rank_needs_no_torch() -> None:
    code = (
        "import sys, manyhands.comm.launch.elastic, manyhands.comm.launch.bootstrap; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
