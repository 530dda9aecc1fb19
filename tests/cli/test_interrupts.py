"""Ctrl-C inside an import waits for its end: C++ that calls Python there cannot carry an exception out."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

SLOW = """
import os, signal, time
os.kill(os.getpid(), signal.SIGINT)
time.sleep(0.3)  # an exception here would come out of this module
print("imported", flush=True)
"""
PROGRAM = """
import time
from manyhands.cli import interrupts
interrupts.install()
try:
    import slow_to_import
    time.sleep(30)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_an_import_ends_before_the_interrupt_comes(tmp_path: Path) -> None:
    (tmp_path / "slow_to_import.py").write_text(SLOW)
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False, timeout=20
    )
    assert done.stdout.split() == ["imported", "interrupted"], done
    assert time.monotonic() - began < 15


def test_a_second_interrupt_does_not_wait(tmp_path: Path) -> None:
    """Of an import that never ends, such as a user's own."""
    twice = SLOW.replace("time.sleep(0.3)", "os.kill(os.getpid(), signal.SIGINT); time.sleep(30)")
    (tmp_path / "slow_to_import.py").write_text(twice)
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False, timeout=20
    )
    assert done.stdout.split() == ["interrupted"], done


def test_what_is_ignored_stays_ignored() -> None:
    code = (
        "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN); from manyhands.cli import interrupts;"
        "interrupts.install(); print(signal.getsignal(signal.SIGHUP) == signal.SIG_IGN)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"
    assert signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
