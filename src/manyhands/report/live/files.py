"""Files: looking into a folder that anybody may have written to, without being led elsewhere or held up.

No symbolic link is followed, neither a folder's nor a file's: who can write below the served folder could otherwise
make the page show any file that the server's user may read, and a loop of links would keep it busy for ever. Whoever
has linked runs together from several places serves those places. A pipe or a device is no file either, since reading
it may never end.
"""

import os
import stat
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Generic, TypeVar

from manyhands.errors import InputError

Stamp = tuple[int, int, int]  # changed when, how large, which file: another stamp is another content
T = TypeVar("T")


def stamp(path: str) -> Stamp | None:
    """What tells whether a file has changed; None where there is no plain file."""
    try:
        found = os.stat(path, follow_symlinks=False)
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_size, found.st_ino) if stat.S_ISREG(found.st_mode) else None


@contextmanager
def opened(path: str) -> Iterator[tuple[int, int]]:
    """A plain file for the block: its descriptor and its size."""
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


def read(path: str, most: int) -> bytes:
    """A whole file of at most so many bytes."""
    with opened(path) as (descriptor, size):
        if size > most:
            raise InputError(
                f"{os.path.basename(path)} has {size / 1e6:,.0f} MB: more than {most / 1e6:,.0f} are not read"
            )
        return os.pread(descriptor, most, 0)


def tail(path: str, most: int) -> bytes:
    """The end of a file, from the beginning of a line where the file is longer."""
    with opened(path) as (descriptor, size):
        found = os.pread(descriptor, most, max(0, size - most))
    return found if size <= most else found.partition(b"\n")[2]


class Cache(Generic[T]):
    """What was made of the files looked at last, made again when a file has changed."""

    def __init__(self, make: Callable[[str], T], most: int) -> None:
        self.make, self.most = make, most
        self.kept: OrderedDict[str, tuple[Stamp, T]] = OrderedDict()
        self.lock = Lock()

    def of(self, path: str) -> T | None:
        """None where there is no such file."""
        now = stamp(path)
        if now is None:
            return None
        with self.lock:
            before = self.kept.get(path)
        if before and before[0] == now:
            return before[1]
        made = self.make(path)
        with self.lock:
            self.kept[path] = (now, made)
            self.kept.move_to_end(path)
            while len(self.kept) > self.most:
                self.kept.popitem(last=False)
        return made
