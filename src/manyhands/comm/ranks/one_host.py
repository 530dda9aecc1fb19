"""One host: how ranks of one machine find each other, without a port that others could reach.

torch's own rendezvous listens on all interfaces, without a secret, and unpickles what it is sent. Ranks of one host
need no network to meet: the agent keeps its store in its own memory, ranks keep theirs in a file of a folder that is
their user's alone, and what then goes over TCP stays on the loopback interface.
"""

import os
import socket
import stat
import tempfile
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from torch.distributed.elastic.rendezvous import (
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
    rendezvous_handler_registry,
)

from manyhands.comm.ranks.loopback import LOOPBACK, environment
from manyhands.comm.ranks.rank_info import STORES
from manyhands.compat import FileStore, HashStore, Store, TCPStore
from manyhands.errors import RankError
from manyhands.files import began

NAME = "manyhands-one-host"  # of the rendezvous, as torch's launcher knows it


class OneHost(RendezvousHandler):
    """The rendezvous of an agent that is alone: it meets nobody, so nothing listens.

    A script that calls `init_process_group` by itself finds its ranks through the agent's store (`env://`), which then
    listens on the loopback interface; our own ranks are given a folder instead.
    """

    def __init__(self, run_id: str, listens: bool) -> None:
        self.run_id, self.closed = run_id, False
        self.store: Store = HashStore()
        port = 0
        if listens:
            listener = socket.create_server((LOOPBACK, 0))
            port = listener.getsockname()[1]
            self.store = TCPStore(LOOPBACK, port, is_master=True, master_listen_fd=listener.detach())
        self.address = RendezvousStoreInfo(LOOPBACK, port)

    def get_backend(self) -> str:
        return NAME

    @property
    def use_agent_store(self) -> bool:
        return True  # else a rank that calls `init_process_group` would listen, on all interfaces

    def next_rendezvous(self) -> RendezvousInfo:
        return RendezvousInfo(self.store, 0, 1, self.address)

    def is_closed(self) -> bool:
        return self.closed

    def set_closed(self) -> None:
        self.closed = True

    def num_nodes_waiting(self) -> int:
        return 0

    def get_run_id(self) -> str:
        return self.run_id

    def shutdown(self) -> bool:
        self.closed = True
        return True


def register() -> None:
    """Make the rendezvous known to torch's launcher; again and again does no harm."""

    def create(parameters: RendezvousParameters) -> RendezvousHandler:
        return OneHost(parameters.run_id, bool(parameters.get("listens")))

    with suppress(ValueError):  # known already
        rendezvous_handler_registry.register(NAME, create)


def file_store(restarts: int, world: int, timeout: timedelta) -> Store:
    """The store by which ranks of this host meet; restarted ones would hang on the keys of those that died."""
    folder = os.environ.get(STORES)
    name = f"store-{restarts}" if folder else _of_parent()
    path = Path(folder) if folder else _own_folder()
    os.environ.update(environment(str(path)))
    store = FileStore(str(path / name), world)
    store.set_timeout(timeout)
    return store


def _of_parent() -> str:
    """A name that the children of one process, as mpirun and srun start them on a host, have in common."""
    parent = os.getppid()
    return f"store-of-{parent}-{began(parent)}"


def _own_folder() -> Path:
    """A folder for stores that nobody else may read or write."""
    path = Path(tempfile.gettempdir(), f"manyhands-stores-{os.getuid()}")
    path.mkdir(mode=0o700, exist_ok=True)
    made = path.lstat()
    if not stat.S_ISDIR(made.st_mode) or made.st_uid != os.getuid() or made.st_mode & 0o077:
        raise RankError(f"{path} is not a folder of this user's alone: remove it, or set TMPDIR to another folder")
    return path
