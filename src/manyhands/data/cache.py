"""Cache: each source decoded once into contiguous arrays that every later start maps into memory."""

import hashlib
import json
import os
import re
import shutil
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyhands import files
from manyhands.data.schema import Kind, Schema
from manyhands.data.source import Content, Source, reading
from manyhands.errors import UNREADABLE, DataError
from manyhands.progress import say

VERSION = 2  # of the stored format and of the decoding: a higher one makes every source be decoded again
ARRAYS = ("inputs.npy", "labels.npy")
DTYPES: dict[Kind, str] = {"image": "uint8", "text": "int32", "table": "float32"}

# numpy reads what is before an array with `ast`, whose depth CPython 3.11 counts for all threads at once: two that read
# at the same time may end in a SystemError.
_heading = threading.Lock()


@dataclass(frozen=True)
class Stored:
    """What the store holds of one source."""

    folder: Path
    schema: Schema
    counts: tuple[int, int, int]
    inputs: NDArray[Any]
    labels: NDArray[np.int64]
    checksum: str


def stored(source: Source) -> Stored:
    """The source's arrays, decoded now if they are not in the store yet."""
    folder = files.home() / "data" / key(source)
    if found := opened(folder):
        return found
    with files.locked(folder.with_name(f"{folder.name}.lock")):
        if found := opened(folder):  # another process made it while this one waited
            return found
        for left in folder.parent.glob(f".{folder.name}.*.tmp"):  # by a process that was killed
            shutil.rmtree(left, ignore_errors=True)
        write(folder, source.read())
    made = opened(folder)
    if made is None:
        raise DataError(f"{folder} changed while it was written: remove it and start again")
    return made


def key(source: Source) -> str:
    """The name of a source's folder: another one as soon as a file's content or an option changes."""
    identity: list[object] = [VERSION, source.name, *source.options]
    identity += [str(path.resolve()) for path in source.files]
    digest = hashlib.sha256(json.dumps([*identity, _content(source)]).encode()).hexdigest()[:16]
    return f"{re.sub(r'[^A-Za-z0-9.-]+', '-', source.name)}-{digest}"


def _content(source: Source) -> str:
    """The checksum of a source's files; read again as soon as the system has noted any change of one of them.

    A time of change can be set at will (`touch -r`); the time at which the entry itself was changed cannot.
    """
    states: list[object] = []
    for path in source.files:
        with reading(path):
            state = path.stat()
        states.append((str(path.resolve()), state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns))
    name = hashlib.sha256(json.dumps(states).encode()).hexdigest()[:32]
    memo = files.home() / "checksums" / name
    with suppress(OSError, ValueError):
        if re.fullmatch(r"[0-9a-f]{64}", known := memo.read_text().strip()):
            return known
    digest = hashlib.sha256()
    for path in source.files:
        with reading(path):
            digest.update(files.sha256(path).encode())
    files.make_folder(memo.parent)
    files.write_text(memo, digest.hexdigest())
    return digest.hexdigest()


def opened(folder: Path) -> Stored | None:
    """What a folder of the store holds; None if there is nothing, or nothing that can be trusted."""
    try:
        meta = json.loads((folder / "meta.json").read_text())
        if meta.pop("sha256") != _sum_of(meta):
            raise ValueError("meta.json does not have its checksum")
        for name, recorded in meta["arrays"].items():
            _check(folder / name, recorded)
        schema = Schema.from_json(meta["schema"])
        with _heading:
            inputs, labels = (np.load(folder / name, mmap_mode="r") for name in ARRAYS)
        train, validation, test = meta["counts"]
        sums = [meta["counts"], *(meta["arrays"][name]["sha256"] for name in ARRAYS)]
        checksum = hashlib.sha256(json.dumps(sums).encode()).hexdigest()
        return Stored(folder, schema, (train, validation, test), inputs, labels, checksum)
    except FileNotFoundError:
        return None
    except UNREADABLE as error:
        say(f"{folder} is damaged ({error}): decoding again")
        return None


def _sum_of(meta: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(meta, sort_keys=True).encode()).hexdigest()


def _check(path: Path, recorded: dict[str, Any]) -> None:
    """Trust an array that nobody touched since it was written; compare the checksum of any other."""
    state = path.stat()
    if (state.st_size, state.st_mtime_ns) == (recorded["size"], recorded["mtime_ns"]):
        return
    if files.sha256(path) != recorded["sha256"]:
        raise ValueError(f"{path.name} does not have the checksum that was recorded")
    with suppress(OSError):  # a copied store is whole: the next start need not read it again
        os.utime(path, ns=(recorded["mtime_ns"], recorded["mtime_ns"]))


def write(folder: Path, content: Content) -> None:
    """Decode a source into a folder of the store, whole or not at all."""
    schema, rows = content.schema, len(content.labels)
    row = (*schema.shape[1:], schema.shape[0]) if schema.kind == "image" else schema.shape
    moments = _Moments(content.counts[0])
    with files.folder_aside(folder) as aside:
        aside.mkdir()
        chunks = (moments.seen(chunk) if schema.kind == "image" else chunk for chunk in content.chunks())
        arrays = {
            "inputs.npy": _write_array(aside / "inputs.npy", DTYPES[schema.kind], (rows, *row), chunks),
            "labels.npy": _write_array(aside / "labels.npy", "int64", (rows,), [content.labels]),
        }
        if schema.kind == "image":
            schema = replace(schema, mean=moments.mean(), std=moments.std())
        meta = {"counts": content.counts, "arrays": arrays, "schema": schema.to_json()}
        (aside / "meta.json").write_text(json.dumps({**meta, "sha256": _sum_of(meta)}))


def _write_array(
    path: Path, dtype: str, shape: tuple[int, ...], chunks: Iterable[NDArray[Any]]
) -> dict[str, str | int]:
    """Write an .npy file piece by piece: a full disk is an error then, where a memory map would crash."""
    written = 0
    header = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": shape}
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for chunk in chunks:
            assert chunk.shape[1:] == shape[1:], (chunk.shape, shape)
            file.write(np.ascontiguousarray(chunk, dtype=dtype).data)
            written += len(chunk)
    assert written == shape[0], (written, shape)
    state = path.stat()
    return {"sha256": files.sha256(path), "size": state.st_size, "mtime_ns": state.st_mtime_ns}


class _Moments:
    """Mean and deviation of each channel over the first `rows` images that come along."""

    def __init__(self, rows: int) -> None:
        self.left, self.pixels = rows, 0
        self.sums: NDArray[np.float64] = np.zeros(1)
        self.squares: NDArray[np.float64] = np.zeros(1)

    def seen(self, chunk: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Count a chunk in, and hand it on."""
        training = chunk[: self.left].reshape(-1, chunk.shape[-1])
        # 256 counts a channel are exact, and need no copy of the chunk as floats.
        counts = np.stack([np.bincount(channel, minlength=256) for channel in training.T])
        self.sums = self.sums + counts @ np.arange(256.0)
        self.squares = self.squares + counts @ np.arange(256.0) ** 2
        self.left, self.pixels = max(0, self.left - len(chunk)), self.pixels + len(training)
        return chunk

    def mean(self) -> tuple[float, ...]:
        return tuple((self.sums / self.pixels).tolist())

    def std(self) -> tuple[float, ...]:
        """At least 1 of 255, so that a channel of one colour can be divided by it."""
        variance = self.squares / self.pixels - (self.sums / self.pixels) ** 2
        return tuple(np.sqrt(np.maximum(variance, 1.0)).tolist())
