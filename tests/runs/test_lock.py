"""One process at a time trains in a run's folder."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from manyhands.config import Config
from manyhands.errors import InputError
from manyhands.plan.spec import parse
from manyhands.runs import run_folder
from manyhands.runs.lock import LOCK, held
from manyhands.train.create import begin

HOLDS = """
import sys, time
from pathlib import Path
from manyhands.files import locked

with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(float(sys.argv[2]))
"""


@pytest.fixture
def run(tmp_path: Path) -> run_folder.Run:
    return begin(Config(), parse("serial"), tmp_path / "run")


def other(run: run_folder.Run, seconds: float) -> "subprocess.Popen[str]":
    """A process that holds the folder for so long."""
    command = [sys.executable, "-c", HOLDS, str(run.folder / LOCK), str(seconds)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_process_that_lives_is_named(run: run_folder.Run) -> None:
    with other(run, 60) as process:
        run.update(process=process.pid)
        with pytest.raises(InputError, match=rf"is still being trained \(process {process.pid}\)"), held(run):
            pass
        process.kill()
    with held(run) as mine:
        assert run_folder.load(run.folder).record["process"] == mine.record["process"] == os.getpid()


def test_what_a_killed_process_has_left_behind_is_waited_for(run: run_folder.Run) -> None:
    """Its loader processes have its lock too, until they notice."""
    run.update(process=2**22)  # the most that Linux gives
    with other(run, 1) as process, held(run):
        assert process.wait(1) == 0


def test_a_run_that_has_finished_meanwhile_stays_finished(run: run_folder.Run) -> None:
    run.update(status="finished", result={"steps": 1})
    with pytest.raises(InputError, match="has finished"), held(run):
        pass
    assert run_folder.load(run.folder).result == {"steps": 1}
