"""Images: files in class folders or named by class, in a folder or a zip, decoded by all cores."""

import os
import threading
import zipfile
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from manyhands import progress
from manyhands.data.image_file import SUFFIXES, decoded, header
from manyhands.data.readers.image_folders import layout
from manyhands.data.schema import DataOptions, Schema
from manyhands.data.source import Content, Source, arranged, reading, slices
from manyhands.errors import DataError

MOST_BYTES = 256_000_000  # of one image file
USUAL_SIDE = 128  # where the images differ in size

Read = Callable[[str], bytes]


def matches(path: Path) -> bool:
    """Any zip, and any folder that holds a zip, folders or images."""
    return path.suffix == ".zip" or (
        path.is_dir()
        and any(each.is_dir() or each.name.lower().endswith((".zip", *SUFFIXES)) for each in path.iterdir())
    )


def source(name: str, path: Path, options: DataOptions) -> Source:
    """The images of a zip, of a folder with one zip, or of the folders in a folder."""
    if path.is_dir() and (zips := sorted(path.glob("*.zip"))):
        path = _only(path, zips)
    names = () if path.suffix == ".zip" else tuple(_walked(path))
    files = tuple(path / each for each in names if not each.endswith("/")) or (path,)
    return Source(name, str(path), files, (options.image_size,), lambda: _read(name, path, names, options.image_size))


def _only(path: Path, zips: list[Path]) -> Path:
    """Kaggle's own archive lies beside another one, of images without labels."""
    chosen = [each for each in zips if len(zips) == 1 or each.name == "train.zip"]
    if not chosen:
        raise DataError(f"{path} holds {len(zips)} zips ({', '.join(each.name for each in zips)}): leave one there")
    return chosen[0]


def _walked(path: Path) -> Iterator[str]:
    """The names of files and, with a slash at the end, of folders below a folder, in order."""
    for folder, folders, files in os.walk(path):
        folders.sort()
        inside = Path(folder).relative_to(path)
        yield from ((inside / each).as_posix() + "/" for each in folders)
        yield from ((inside / each).as_posix() for each in sorted(files))


def _read(name: str, path: Path, names: tuple[str, ...], side: int | None) -> Content:
    with _opened(path) as (inside, read):
        found = layout(str(path), names or inside, read)
        shape = _shape(path, found.names, read, side)
    order, counts = arranged(name, found.labels, found.parts)
    ordered = [found.names[row] for row in order]
    schema = Schema(name, "image", shape, found.classes)
    return Content(schema, found.labels[order], counts, lambda: _decode(path, ordered, shape))


@contextmanager
def _opened(path: Path) -> Iterator[tuple[list[str], Read]]:
    """The names in a zip (none of a folder), and what reads a file by its name from any thread."""
    if path.suffix != ".zip":
        yield [], lambda name: _read_file(path / name)
        return
    try:
        with reading(path):
            archive = zipfile.ZipFile(path)
    except zipfile.BadZipFile as error:
        raise DataError(f"{path} is not a whole zip ({error}): get a whole copy") from error
    turn = threading.Lock()

    def read(name: str) -> bytes:
        try:
            with turn, reading(path):
                if (size := archive.getinfo(name).file_size) > MOST_BYTES:
                    raise DataError(
                        f"{name} in {path} has {size:,} bytes, an image at most {MOST_BYTES:,}: leave it out"
                    )
                with archive.open(name) as file:
                    return file.read(MOST_BYTES)  # whatever size was declared
        except (KeyError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError) as error:
            raise DataError(f"cannot read {name} in {path} ({error}): get a whole copy") from error

    with archive:
        yield archive.namelist(), read


def _read_file(path: Path) -> bytes:
    with reading(path):
        if (size := path.stat().st_size) > MOST_BYTES:
            raise DataError(f"{path} has {size:,} bytes, an image at most {MOST_BYTES:,}: leave it out")
        return path.read_bytes()


def _shape(path: Path, names: tuple[str, ...], read: Read, side: int | None) -> tuple[int, int, int]:
    """Grey only if every image is; their own size if all have the same; looks no further than it must."""
    grey, sizes = True, set()
    for name in names:
        is_grey, size = header(f"{name} in {path}", read(name))
        grey = grey and is_grey
        sizes.add(size)
        if not grey and (side or len(sizes) > 1):
            break
    width, height = sizes.pop() if len(sizes) == 1 and not side else [side or USUAL_SIDE] * 2
    return (1 if grey else 3, height, width)


def _decode(path: Path, names: list[str], shape: tuple[int, int, int]) -> Iterator[NDArray[np.uint8]]:
    workers = len(os.sched_getaffinity(0))
    with (
        _opened(path) as (_, read),
        ThreadPoolExecutor(workers) as pool,
        progress.bar(f"decoding {path.name}", len(names), "images") as bar,
    ):

        def picture(name: str) -> NDArray[np.uint8]:
            return decoded(f"{name} in {path}", read(name), shape)

        for each in slices(len(names), int(np.prod(shape))):
            yield np.stack(list(pool.map(picture, names[each])))
            bar.advance(each.stop - each.start)
