"""Processes of which some die while the others go on."""

import os
import signal
import threading
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from manyhands.comm.launch.supervisor import ProcessSupervisor

MODULE = """
import os, signal, sys
from pathlib import Path
folder, rank = Path(sys.argv[1]), int(sys.argv[2])
(folder / f"{rank}.pid").write_text(str(os.getpid()))
if rank == 0:
    raise ValueError("no luck")
if rank == 1:
    sys.exit(0)
signal.pause()
"""


class Heard:
    """What a flock told, and a way to wait for it."""

    def __init__(self) -> None:
        self.told: dict[int, str | None] = {}
        self.changed = threading.Condition()

    def __call__(self, rank: int, why: str | None) -> None:
        with self.changed:
            self.told[rank] = why
            self.changed.notify_all()

    def wait(self, *ranks: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: set(ranks) <= self.told.keys(), timeout=60), self.told


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "some_hand.py").write_text(MODULE)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    return "some_hand"


def test_who_ended_and_why(module: str, tmp_path: Path) -> None:
    heard = Heard()
    with suppress(RuntimeError), ProcessSupervisor(module, [str(tmp_path)], 4, {}, heard) as supervisor:
        heard.wait(0, 1)
        assert heard.told == {0: "rank 0 failed: ValueError: no luck", 1: None}
        os.kill(supervisor.alive[2].pid, signal.SIGKILL)
        heard.wait(2)
        assert heard.told[2] == "rank 2 was killed (signal 9)"
        supervisor.start(2)
        alive = [supervisor.alive[rank].pid for rank in (2, 3)]
        assert all(map(psutil.pid_exists, alive))
        raise RuntimeError("over")
    assert not any(map(psutil.pid_exists, alive))
