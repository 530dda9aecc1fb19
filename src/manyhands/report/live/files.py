"""Files: what tells that one has changed, and what was made of those looked at last."""

import os
import stat
from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar

Stamp = tuple[int, int, int]  # changed when, how large, which file: another stamp is another content
T = TypeVar("T")


def stamp(path: str) -> Stamp | None:
    """What tells whether a file has changed; None where there is no plain file."""
    try:
        found = os.stat(path, follow_symlinks=False)
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_size, found.st_ino) if stat.S_ISREG(found.st_mode) else None


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
