"""The tracer: what it counts, and what a training of today comes to, which may only fall."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tracer import as_it_is, counted, moved

CALLS = {
    ("", "", "cli/main.py", "main"): 1,
    ("cli/main.py", "main", "runs/run.py", "train_new"): 1,
    ("runs/run.py", "train_new", "runs/run.py", "begin"): 1,
    ("runs/run.py", "begin", "files.py", "write_json"): 7,
    ("runs/run.py", "Work.go", "engine/loop.py", "Loop.run"): 2,
    ("engine/loop.py", "Loop.run", "runs/run.py", "Work.told"): 5,
    ("runs/run.py", "<module>", "plan/plan.py", "<module>"): 1,
}
# Of an epoch of `data:2`: files entered, pairs of modules across rooms, calls from room to room.
MOST = {"files": 110, "pairs": 121, "changes": 3300, "changes_a_step": 10.0}


def test_calls_from_room_to_room() -> None:
    assert counted(CALLS, as_it_is) == {"files": 4, "pairs": 3, "changes": 8}


def test_symbols_are_counted_where_they_shall_stand() -> None:
    place = moved("# today\tto be\tsymbols\nruns/run.py\ttrain/launch.py\t\nruns/run.py\tengine/work.py\tWork Other\n")
    assert place("runs/run.py", "begin") == "train/launch.py"
    assert place("runs/run.py", "Work.go") == "engine/work.py"
    assert place("cli/main.py", "main") == "cli/main.py"
    assert counted(CALLS, place) == {"files": 5, "pairs": 1, "changes": 1}


@pytest.mark.long
def test_a_training_enters_no_more_than_today(tmp_path: Path) -> None:
    train = ("train", "convnet", "--data", "digits", "--plan", "data:2", "--epochs", "1", "-q")
    command = [sys.executable, str(Path(__file__).with_name("tracer.py")), "--step", *train]
    told = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    print(told)
    assert {name: told[name] for name in MOST if told[name] > MOST[name]} == {}
