"""The store: decoded once, trusted only while it is whole."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from manyhands.data.cache import key, opened, stored
from manyhands.data.load import load
from manyhands.data.schema import Schema
from manyhands.data.source import Content, Source
from manyhands.errors import DataError, StorageError

ROWS = np.random.default_rng(0).integers(256, size=(50, 4, 3, 2), dtype=np.uint8)
LABELS = np.arange(50) % 3
SCHEMA = Schema("made", "image", (2, 4, 3), ("a", "b", "c"))


class Reader:
    """Counts how often it is read, and can fail half-way."""

    def __init__(self, failure: BaseException | None = None) -> None:
        self.read, self.failure = 0, failure

    def source(self, *files: Path, options: tuple[int, ...] = ()) -> Source:
        return Source("made", "here", files, options, self.content)

    def content(self) -> Content:
        self.read += 1
        return Content(SCHEMA, LABELS, (30, 5, 15), self.chunks)

    def chunks(self) -> Iterator[np.ndarray]:
        yield ROWS[:20]
        if self.failure:
            raise self.failure
        yield ROWS[20:]


def entries(home: Path) -> list[str]:
    return [each.name for each in (home / "data").iterdir() if each.suffix != ".lock"]


def test_decoded_once_then_mapped() -> None:
    reader = Reader()
    first, second = stored(reader.source()), stored(reader.source())
    assert reader.read == 1
    for each in (first, second):
        assert isinstance(each.inputs, np.memmap)
        np.testing.assert_array_equal(each.inputs, ROWS)
        np.testing.assert_array_equal(each.labels, LABELS)
        assert each.counts == (30, 5, 15)


def test_mean_and_deviation_are_of_the_training_rows() -> None:
    schema = stored(Reader().source()).schema
    np.testing.assert_allclose(schema.mean, ROWS[:30].mean(axis=(0, 1, 2)))
    np.testing.assert_allclose(schema.std, ROWS[:30].std(axis=(0, 1, 2)))


def test_another_file_or_option_is_another_entry(tmp_path: Path) -> None:
    file, reader = tmp_path / "a", Reader()
    file.write_text("one")
    keys = {key(reader.source()), key(reader.source(file)), key(reader.source(file, options=(64,)))}
    file.write_text("three")
    keys.add(key(reader.source(file)))
    assert len(keys) == 4


def test_the_content_decides_and_not_the_clock(tmp_path: Path) -> None:
    """As `touch -r` leaves it: another content of the same size and time of change."""
    file, reader = tmp_path / "a", Reader()
    file.write_text("one")
    first, times = key(reader.source(file)), (file.stat().st_atime_ns, file.stat().st_mtime_ns)
    os.utime(file, ns=(1, 1))
    assert key(reader.source(file)) == first
    file.write_text("two")
    os.utime(file, ns=times)
    assert key(reader.source(file)) != first


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="gone is missing"):
        stored(Reader().source(tmp_path / "gone"))


@pytest.mark.parametrize("array", ["inputs.npy", "labels.npy"])
def test_a_corrupted_array_is_decoded_again(array: str, capsys: pytest.CaptureFixture[str]) -> None:
    reader = Reader()
    path = stored(reader.source()).folder / array
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    again = stored(reader.source())
    assert reader.read == 2
    np.testing.assert_array_equal(again.inputs, ROWS)
    np.testing.assert_array_equal(again.labels, LABELS)
    assert "checksum" in capsys.readouterr().err


@pytest.mark.parametrize("content", [None, "", "{", "[]", '{"arrays": {}}'])
def test_a_broken_meta_is_decoded_again(content: str | None) -> None:
    reader = Reader()
    meta = stored(reader.source()).folder / "meta.json"
    meta.unlink() if content is None else meta.write_text(content)
    assert len(stored(reader.source()).labels) == 50
    assert reader.read == 2


def test_a_missing_array_is_decoded_again() -> None:
    reader = Reader()
    (stored(reader.source()).folder / "inputs.npy").unlink()
    np.testing.assert_array_equal(stored(reader.source()).inputs, ROWS)
    assert reader.read == 2


def test_a_copied_store_is_checked_once_and_trusted() -> None:
    reader = Reader()
    folder = stored(reader.source()).folder
    shutil.copytree(folder, folder.with_name("copy"), copy_function=shutil.copyfile)
    shutil.rmtree(folder)
    folder.with_name("copy").rename(folder)
    assert len(stored(reader.source()).labels) == 50
    assert reader.read == 1
    recorded = json.loads((folder / "meta.json").read_text())["arrays"]["inputs.npy"]["mtime_ns"]
    assert (folder / "inputs.npy").stat().st_mtime_ns == recorded


@pytest.mark.parametrize("failure", [DataError("bad image"), KeyboardInterrupt()])
def test_a_failure_leaves_nothing(home: Path, failure: BaseException) -> None:
    with pytest.raises(type(failure)):
        stored(Reader(failure).source())
    assert entries(home) == []


def test_a_full_disk_is_one_clear_line_and_leaves_nothing(home: Path) -> None:
    with pytest.raises(StorageError, match="no space left while writing"):
        stored(Reader(OSError(errno.ENOSPC, "full")).source())
    assert entries(home) == []


KILLED_HALF_WAY = """
import os, signal
from manyhands.data.load import load
from manyhands.data.readers import digits

draw, calls = digits.drawn, []

def drawn(*arguments):
    calls.append(1)
    if len(calls) == 9:
        os.kill(os.getpid(), signal.SIGKILL)
    return draw(*arguments)

digits.drawn = drawn
load("digits")
"""


def test_killed_half_way_leaves_nothing_that_is_trusted(home: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED_HALF_WAY], capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    (left,) = (home / "data").glob(".*.tmp")
    assert (left / "inputs.npy").stat().st_size > 1_000_000
    assert opened(left) is None
    assert len(load("digits").test) == 10_000
    assert not left.exists(), "what a kill left behind takes space until the next start"
