"""What is asked of a command on a rough day: absurd numbers, no home, a closed output, a folder that is gone."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from manyhands.files import TemporaryFolder

TRAIN = ("train", "mlp", "--data", "digits")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--set", "model.depth=99999999999999999999"), "a whole number up to 9,007,199,254,740,992 is needed"),
        (("--set", "model.depth=99999"), "it must be at most 10,000"),
        (("--set", "model.width=1e308"), "it must be at most 10,000,000,000"),
        (("--data", "~nosuchuser/set"), "no home folder is known"),
    ],
)
def test_absurd_words(manyhands: Any, tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    ended = manyhands(*TRAIN, *words, "--out", tmp_path / "run")
    assert ended.code == 2
    assert said in ended.error
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("value", ["inf", "nan", "9" * 401, "[" * 5000 + "]" * 5000], ids=["inf", "nan", "401", "deep"])
def test_absurd_configs(manyhands: Any, tmp_path: Path, value: str) -> None:
    (tmp_path / "a.toml").write_text(f"[train]\nepochs = {value}\n")
    ended = manyhands(*TRAIN, "--config", tmp_path / "a.toml", "--out", tmp_path / "run")
    assert ended.code == 2
    assert len(ended.error) < 400
    assert not (tmp_path / "run").exists()


def call(words: str, **options: Any) -> "subprocess.CompletedProcess[str]":
    """By a shell, whose redirections are what is tried."""
    command = words.replace("manyhands", f"{sys.executable} -m manyhands", 1)
    return subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False, **options)


@pytest.mark.parametrize(
    "words", ["manyhands runs --json >&-", "manyhands runs --json > /dev/full", "manyhands runs >&-"]
)
def test_an_output_that_takes_nothing(words: str) -> None:
    ended = call(words)
    assert ended.returncode in (0, 2)
    assert "Traceback" not in ended.stderr
    assert "Exception ignored" not in ended.stderr


def test_a_folder_that_is_gone(tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    ended = call(f"cd {tmp_path}/gone && rmdir {tmp_path}/gone && manyhands {' '.join(TRAIN)}")
    assert ended.returncode != 0
    assert "Traceback" not in ended.stderr


def test_no_home(tmp_path: Path) -> None:
    bare = {
        name: value for name, value in os.environ.items() if name not in ("HOME", "MANYHANDS_HOME", "XDG_CACHE_HOME")
    }
    ended = call("manyhands runs", env={**bare, "MANYHANDS_HOME": "~nosuchuser/x"})
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("error: no home folder is known")


@pytest.mark.parametrize("seconds", [0.05, 0.2, 0.4])
def test_ctrl_c_in_the_first_moments(seconds: float) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "manyhands", "runs"], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        time.sleep(seconds)
        child.send_signal(signal.SIGINT)
        _, said = child.communicate(timeout=30)
    # Python's own start, before any line of ours, has a traceback of its own.
    assert "Traceback" not in said or "manyhands" not in said
    assert "--resume" not in said


def test_what_a_killed_process_left_is_cleared_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    code = "import os\nfrom manyhands.files import TemporaryFolder\nfolder = TemporaryFolder()\nos.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "TMPDIR": str(tmp_path)}, check=False)
    (left,) = tmp_path.iterdir()
    with TemporaryFolder() as mine, TemporaryFolder() as other:
        assert not left.exists()
        assert Path(mine).is_dir(), "of a process that is alive"
        assert Path(other).is_dir()
    assert list(tmp_path.iterdir()) == []
