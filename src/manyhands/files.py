"""Files that are whole or absent: written aside and renamed, checksummed, locked."""

import errno
import fcntl
import hashlib
import json
import os
import shutil
import stat
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from manyhands.errors import InputError, StorageError

MOST_NAME = 255  # bytes of a name in the file systems of today
STREAMS = ("/dev/fd/", "/dev/std", "/proc/")  # an open file by another name, which a rename would not reach
TEMPORARY = "manyhands-"  # how our temporary folders begin
READER_SECONDS = 10  # that a FIFO may be without a reader


def home() -> Path:
    """The folder for caches and runs: MANYHANDS_HOME, or the user's cache folder."""
    if named := os.environ.get("MANYHANDS_HOME"):
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "manyhands"


def read_toml(path: Path, what: str, error: type[InputError], repair: str) -> dict[str, Any]:
    """The table of a user's file; `what` it is and how to `repair` its absence are for the one line of an error."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except RecursionError:
        raise error(f"{path} is nested too deeply for a {what} file: {repair}") from None
    except FileNotFoundError:
        raise error(f"there is no {what} file {path}: {repair}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as reason:
        raise error(f"{path} is not a TOML file: {reason}") from None
    except OSError as reason:
        raise error(f"cannot read the {what} file {path}: {reason.strerror}") from None


@contextmanager
def opened(path: str | Path) -> Iterator[tuple[int, int]]:
    """A plain file for the block, its descriptor and its size, in a folder that anybody may have written to.

    No link is followed: who can write there could otherwise have any file read that this process may read. A pipe or a
    device is no file either, since reading it may never end.
    """
    name = os.path.basename(path)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise InputError(f"{name} cannot be read: {error.strerror}") from None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise InputError(f"{name} is not a file")
        yield descriptor, found.st_size
    finally:
        os.close(descriptor)


def read(path: str | Path, most: int) -> bytes:
    """A whole file of at most so many bytes."""
    with opened(path) as (descriptor, size):
        if size > most:
            raise InputError(
                f"{os.path.basename(path)} has {size / 1e6:,.0f} MB: more than {most / 1e6:,.0f} are not read"
            )
        return os.pread(descriptor, most, 0)


def tail(path: str | Path, most: int) -> bytes:
    """The end of a file, from the beginning of a line where the file is longer."""
    with opened(path) as (descriptor, size):
        found = os.pread(descriptor, most, max(0, size - most))
    return found if size <= most else found.partition(b"\n")[2]


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
    if error.errno == errno.EFBIG:
        return StorageError(f"{path} may not grow so large here: raise the limit (ulimit -f) or choose another folder")
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
    """Give a temporary name for a file's new content, which takes its place when the block ends well.

    What stands at `path` decides how, and stays as it was until then:

        nothing, or a regular file                             renamed, with the mode and the owner that it had
        a file with several names, or an owner not to be kept  copied into it, once the whole content stands beside it
        a device, a FIFO                                       opened and written
        a link                                                 its target, by the same rules
        a folder, a file without the write bit, a Python file  refused (see `check_output`)
    """
    path = Path(os.path.abspath(path))
    check_output(path)
    with storage_errors(path):
        was = path.stat() if path.exists() else None
        if was and (not stat.S_ISREG(was.st_mode) or str(path).startswith(STREAMS)):
            with _temporary() as aside:
                yield aside
                _stream(aside, path)
            return
        target = Path(os.path.realpath(path))
        target.parent.mkdir(parents=True, exist_ok=True)
        aside = path_beside(target, "tmp")
        try:
            usual = _made(aside)
            if was:
                aside.chmod(stat.S_IRUSR | stat.S_IWUSR)  # what was private stays so while it is written
            yield aside
            _sync(aside)
            if was is None:
                aside.chmod(usual)
                aside.replace(target)
            elif _is_like(aside, was) and was.st_nlink == 1:
                aside.replace(target)
            else:
                _copy_into(aside, target)
        finally:
            with suppress(OSError):
                aside.unlink()


def check_output(path: Path) -> None:
    """Refuse, before any work, a path that no file's content can be written to."""
    with storage_errors(path):
        try:
            was = path.stat()
        except FileNotFoundError:
            return
        if stat.S_ISDIR(was.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if stat.S_ISSOCK(was.st_mode):
            raise StorageError(f"{path} is a socket: choose the name of a file")
        # Root may write whatever it likes; a file that its owner has protected is meant to stay.
        if not was.st_mode & stat.S_IWUSR or not os.access(path, os.W_OK):
            raise StorageError(f"{path} is read-only: choose another name, or allow it by chmod u+w")
        if stat.S_ISREG(was.st_mode) and path.suffix == ".py":
            raise StorageError(f"{path} is a Python file, which nothing here replaces: choose another name")


def identity(path: Path) -> object:
    """What two names of one file have in common, whether it exists yet or not."""
    try:
        was = path.stat()
    except OSError:
        return os.path.realpath(path)
    return was.st_dev, was.st_ino


@contextmanager
def folder_aside(path: Path) -> Iterator[Path]:
    """As `written_aside`, for a folder, which the block makes; the folder at `path` is replaced whole."""
    path = Path(os.path.abspath(path))
    aside, old = path_beside(path, "tmp"), path_beside(path, "old")
    try:
        with storage_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            yield aside
            _sync(aside)
            if path.is_dir():
                path.replace(old)
                aside.replace(path)
                shutil.rmtree(old)
            else:
                aside.replace(path)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def path_beside(path: Path, end: str) -> Path:
    """A hidden name of this process's own in the same folder; no longer than a name may be."""
    tail = f".{os.getpid()}.{end}"
    stem = path.name.encode()[: MOST_NAME - 1 - len(tail)].decode(errors="ignore")
    return path.with_name(f".{stem}{tail}")


def _made(path: Path) -> int:
    """Make an empty file that nobody else has made, and give the mode that files have here."""
    path.unlink(missing_ok=True)  # of a process with this number that was killed
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
    try:
        return stat.S_IMODE(os.fstat(descriptor).st_mode)
    finally:
        os.close(descriptor)


def _is_like(path: Path, was: os.stat_result) -> bool:
    """Give a new file the owner and the mode of the one that it replaces; False where the owner cannot be kept."""
    made = path.stat()
    if (made.st_uid, made.st_gid) != (was.st_uid, was.st_gid):
        try:
            os.chown(path, was.st_uid, was.st_gid)
        except PermissionError:
            return False
    path.chmod(stat.S_IMODE(was.st_mode))
    return True


def _copy_into(whole: Path, path: Path) -> None:
    """Write a file in place; should that break off, the whole content stays beside it."""
    kept = path.with_name(path_beside(path, "whole").name)
    whole.rename(kept)
    try:
        with kept.open("rb") as source, path.open("wb") as target:
            shutil.copyfileobj(source, target)
            target.flush()
            os.fsync(target.fileno())
    except OSError as error:
        raise StorageError(f"{path} was written in part ({error.strerror}): its whole content is in {kept}") from error
    kept.unlink()


class TemporaryFolder(tempfile.TemporaryDirectory[str]):
    """A folder that is gone after the block; what a process that was killed has left is cleared away by the next."""

    def __init__(self) -> None:
        for left in Path(tempfile.gettempdir()).glob(f"{TEMPORARY}*-*-*"):
            _, pid, then, *_ = left.name.split("-", 3)
            if pid.isdigit() and began(int(pid)) != then:
                with suppress(OSError):
                    if left.lstat().st_uid == os.getuid() and stat.S_ISDIR(left.lstat().st_mode):
                        shutil.rmtree(left, ignore_errors=True)
        super().__init__(prefix=f"{TEMPORARY}{os.getpid()}-{began(os.getpid())}-")


def began(pid: int) -> str:
    """When a process began, in the kernel's ticks: its number alone may be another's by now."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return "0"


@contextmanager
def _temporary() -> Iterator[Path]:
    with TemporaryFolder() as folder:
        yield Path(folder, "content")


def _stream(content: Path, path: Path) -> None:
    """Write into a device, or into a FIFO, which must have a reader."""
    deadline = time.monotonic() + READER_SECONDS
    while True:
        try:  # without waiting: a FIFO that nobody reads would hold us for ever
            descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
            break
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            if time.monotonic() > deadline:
                raise StorageError(f"nobody reads {path}: start its reader first, or choose another name") from None
            time.sleep(0.05)
    os.set_blocking(descriptor, True)
    with content.open("rb") as source, open(descriptor, "wb") as target:
        shutil.copyfileobj(source, target)


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
