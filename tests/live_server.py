"""The live page's server in a thread of the tests."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from manyhands.report.live.serve import Server


@dataclass
class Served:
    """A server in a thread, and a client of it."""

    server: Server
    thread: threading.Thread
    client: httpx.Client

    def end(self) -> None:
        self.server.should_exit = True
        self.thread.join(20)
        assert not self.thread.is_alive()
        self.client.close()


Start = Callable[..., Served]


def begin(folder: Path, host: str = "127.0.0.1", port: int = 0) -> Served:
    server = Server(folder, host, port)
    thread = threading.Thread(target=server.go)
    thread.start()
    return Served(server, thread, httpx.Client(base_url=f"http://127.0.0.1:{server.address.port}", timeout=20))


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """A function that serves the test's folder, or one in it."""
    started: list[Served] = []

    def serve(host: str = "127.0.0.1", folder: Path = tmp_path) -> Served:
        started.append(begin(folder, host))
        return started[-1]

    yield serve
    for each in started:
        each.end()
