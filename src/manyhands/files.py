"""Files that are whole or absent: written aside and renamed, checksummed, locked."""

import errno
import fcntl
import hashlib
import json
import os
import shutil
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from manyhands.errors import InputError, StorageError


def home() -> Path:
    """The folder for caches and runs: MANYHANDS_HOME, or the user's cache folder."""
    if named := os.environ.get("MANYHANDS_HOME"):
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "manyhands"


def read_toml(path: Path, what: str, error: type[InputError], repair: str) -> dict[str, Any]:
    """The table of a user's file; `what` it is and how to `repair` its absence are for the one line of an error."""
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise error(f"there is no {what} file {path}: {repair}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as reason:
        raise error(f"{path} is not a TOML file: {reason}") from None
    except OSError as reason:
        raise error(f"cannot read the {what} file {path}: {reason.strerror}") from None


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn the operating system's refusals while writing below `path` into one clear line."""
    try:
        yield
    except OSError as error:
        raise _storage_error(path, error) from error


def _storage_error(path: Path, error: OSError) -> OSError | StorageError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageError(f"no space left while writing {path}: free some space or choose another folder")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return StorageError(f"cannot write {path} ({error.strerror}): choose a folder that you may write to")
    if error.errno == errno.EISDIR:
        return StorageError(f"{path} is a folder: choose the name of a file")
    if error.errno in (errno.ENOTDIR, errno.EEXIST, errno.ENOENT, errno.ENAMETOOLONG, errno.ELOOP):
        return StorageError(f"cannot write {path} ({error.strerror}): choose another name")
    return error


def make_folder(path: Path) -> Path:
    """Make a folder with its parents, and prove that it can be written."""
    with storage_errors(path):
        path.mkdir(parents=True, exist_ok=True)
        if not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return path


@contextmanager
def written_aside(path: Path) -> Iterator[Path]:
    """Give a temporary name beside `path`, renamed to it when the block ends well, removed when not.

    Works for a file and for a folder; what was at `path` stays until the rename. A file never replaces a folder.
    """
    path = Path(os.path.abspath(path))
    aside, old = (path.with_name(f".{path.name}.{os.getpid()}.{end}") for end in ("tmp", "old"))
    try:
        with storage_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            yield aside
            _sync(aside)
            if path.is_dir() and aside.is_dir():
                path.replace(old)
                aside.replace(path)
                shutil.rmtree(old)
            else:
                aside.replace(path)
    finally:
        if aside.is_dir():
            shutil.rmtree(aside, ignore_errors=True)
        else:
            with suppress(OSError):
                aside.unlink()


def _sync(path: Path) -> None:
    """Flush a file, or the files of a folder, to the disk: after a power cut a rename must not outlive its data."""
    for each in (path, *path.rglob("*")) if path.is_dir() else (path,):
        descriptor = os.open(each, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file so that a reader sees the old one or the new one, never half of it."""
    with written_aside(path) as aside:
        aside.write_bytes(content)


def write_text(path: Path, text: str) -> None:
    """As `write_bytes`, for text."""
    write_bytes(path, text.encode())


def write_texts(texts: Mapping[Path, str]) -> None:
    """Several files: all of them, or none where one cannot be written."""
    with ExitStack() as stack:
        for path, text in texts.items():
            with storage_errors(path):
                if path.is_dir():  # which would show only when others have their names
                    raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            stack.enter_context(written_aside(path)).write_bytes(text.encode())


def write_json(path: Path, value: Any) -> None:
    """As `write_bytes`, for a JSON value."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def sha256(path: Path) -> str:
    """The checksum of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[None]:
    """Hold a lock file for the block, so that two processes do not make the same thing at once.

    The kernel drops the lock with its process: a kill leaves a file behind, never a lock.
    """
    make_folder(path.parent)
    with storage_errors(path):
        file = path.open("w")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise StorageError(f"another process is at work in {path.parent}: wait for it, or end it") from None
        yield
