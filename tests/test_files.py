"""Files are whole or absent."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from manyhands.errors import StorageError
from manyhands.files import folder_aside, make_folder, write_json, write_texts, written_aside


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"a": 1})
    with pytest.raises(TypeError):
        write_json(path, {"a": object()})
    with pytest.raises(ZeroDivisionError), written_aside(path) as aside:
        aside.write_text(f"half {1 / 0}")
    assert path.read_text() == '{\n  "a": 1\n}\n'
    assert os.listdir(tmp_path) == ["a.json"]


def test_a_folder_replaces_a_folder(tmp_path: Path) -> None:
    for content in ("old", "new"):
        with folder_aside(tmp_path / "folder") as aside:
            aside.mkdir()
            (aside / content).touch()
    assert os.listdir(tmp_path / "folder") == ["new"]


def test_a_file_in_the_way_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="choose"):
        make_folder(tmp_path / "file" / "below")


APPEND = """
import sys
from pathlib import Path
from manyhands.files import locked, write_bytes
path, lock = map(Path, sys.argv[1:])
for _ in range(50):
    with locked(lock):
        write_bytes(path, path.read_bytes() + b"x")
"""


def test_the_lock_excludes(tmp_path: Path) -> None:
    path = tmp_path / "count"
    path.touch()
    command = [sys.executable, "-c", APPEND, str(path), str(tmp_path / "lock")]
    workers = [subprocess.Popen(command) for _ in range(2)]
    assert [worker.wait(60) for worker in workers] == [0, 0]
    assert path.read_bytes() == b"x" * 100


def test_several_files_are_written_or_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(StorageError, match="choose another name"):
        write_texts({tmp_path / "one": "1", tmp_path / "file" / "two": "2"})
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    write_texts({tmp_path / "one": "1", tmp_path / "deep" / "two": "2"})
    assert (tmp_path / "one").read_text() + (tmp_path / "deep" / "two").read_text() == "12"
