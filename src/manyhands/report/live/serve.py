"""Serve: the live page on a port, until it is interrupted."""

import errno
import secrets
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from manyhands.errors import InputError
from manyhands.report.live.app import Live
from manyhands.report.live.gate import is_loopback
from manyhands.report.live.index import Index


@dataclass(frozen=True)
class Address:
    """Where the page is, and what opens it there."""

    host: str
    port: int
    token: str | None

    @property
    def url(self) -> str:
        """As a person types it. Bound to all addresses, the machine's own name leads there from elsewhere."""
        host = socket.gethostname() if self.host in ("0.0.0.0", "::", "") else self.host
        shown = f"[{host}]" if ":" in host else host
        return f"http://{shown}:{self.port}/" + (f"?token={self.token}" if self.token else "")


class Server(uvicorn.Server):
    """The live page of a folder, listening from the moment it is made."""

    def __init__(self, folder: Path, host: str, port: int) -> None:
        if not folder.is_dir():
            raise InputError(f"there is no folder {folder}: give one that holds runs, or is to hold them")
        self.listener = _listening(host, port)
        token = None if is_loopback(host) else secrets.token_urlsafe(24)
        self.address = Address(host, self.listener.getsockname()[1], token)
        self.live = Live(Index(folder))
        self.live.index.refresh()  # the longest look is the first: no page waits for it
        app = self.live.app(host, self.address.port, token)
        quiet: dict[str, Any] = {"log_config": None, "access_log": False, "server_header": False}
        super().__init__(uvicorn.Config(app, lifespan="off", ws="none", **quiet))

    def go(self) -> None:
        """Answer, until Ctrl-C, SIGTERM or `should_exit`."""
        with self.listener:
            self.run(sockets=[self.listener])

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.live.events.close()  # else it would wait for streams that never end
        await super().shutdown(sockets)


def serve(folder: Path, host: str, port: int, ready: Callable[[Address], None]) -> None:
    """Show the runs below a folder; `ready` is told the address. To be interrupted is how it ends, and no failure."""
    with suppress(KeyboardInterrupt):
        server = Server(folder, host, port)
        ready(server.address)
        server.go()


def _listening(host: str, port: int) -> socket.socket:
    if not 0 <= port <= 65535:
        raise InputError(f"--port {port}: allowed are 0 to 65535; 0 takes a free one")
    try:
        family, _, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(where[:2], family=family, backlog=128)
    except (OSError, UnicodeError) as error:  # the latter by a name that cannot be one
        raise InputError(_refused(host, port, error)) from None


def _refused(host: str, port: int, error: OSError | UnicodeError) -> str:
    number = error.errno if isinstance(error, OSError) else None
    if number == errno.EADDRINUSE:
        return f"port {port} of {host} is taken: choose another with --port, or --port 0 for a free one"
    if number == errno.EACCES:
        return f"port {port} may not be used: choose one from 1024 on with --port"
    return f"--host {host} is no address of this machine: 127.0.0.1 is one, and 0.0.0.0 is all of them"
