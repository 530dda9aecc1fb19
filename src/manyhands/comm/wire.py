"""Wire: messages between two processes of which either may end at any time.

    │ bytes of the head │ head, as JSON │ first tensor │ second tensor │ …

Torch's process groups end with the first rank that dies, and nobody can join them later. Here the end of one process is
the end of its own connections alone. Nothing that is received is ever executed: heads are JSON, tensors are numbers.
"""

import contextlib
import hmac
import json
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from manyhands.errors import RankError

Head = dict[str, Any]

HEAD = struct.Struct("!I")
MOST_HEAD = 1 << 20  # bytes; whoever sends more does not speak this language
PATIENCE = 60.0  # seconds to say who one is, or to be let in
TYPES = {str(each).removeprefix("torch."): each for each in (torch.float32, torch.float64, torch.bfloat16, torch.int64)}


class Gone(RankError):
    """The other end has ended."""


class Wire:
    """One end of a connection; several threads may send, one receives."""

    def __init__(self, link: socket.socket) -> None:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.link, self.sending = link, threading.Lock()

    def send(self, head: Head, rows: Sequence[Tensor] = ()) -> None:
        """A head, and one-dimensional tensors as they lie in memory."""
        kinds = [[str(row.dtype).removeprefix("torch."), row.numel()] for row in rows]
        text = json.dumps({**head, "rows": kinds}).encode()
        with self.sending, _gone():
            self.link.sendall(HEAD.pack(len(text)) + text)
            for row in rows:
                self.link.sendall(_bytes(row))

    def receive(self, into: Sequence[Tensor] = ()) -> tuple[Head, list[Tensor]]:
        """The next message; its tensors in `into` where these are given."""
        with _gone():
            (length,) = HEAD.unpack(self._exactly(bytearray(HEAD.size)))
            if length > MOST_HEAD:
                raise Gone(f"a head of {length} bytes was sent, {MOST_HEAD} are allowed")
            head: Head = json.loads(self._exactly(bytearray(length)))
            kinds = head.pop("rows")
            rows = list(into) or [torch.empty(count, dtype=TYPES[kind]) for kind, count in kinds]
            if [[TYPES[kind], count] for kind, count in kinds] != [[row.dtype, row.numel()] for row in rows]:
                raise RankError(f"tensors {kinds} were sent, {[list(row.shape) for row in rows]} were expected")
            for row in rows:
                self._exactly(_bytes(row))
            return head, rows

    def ask(self, head: Head, rows: Sequence[Tensor] = (), into: Sequence[Tensor] = ()) -> tuple[Head, list[Tensor]]:
        """Send, and wait for the answer."""
        self.send(head, rows)
        return self.receive(into)

    def _exactly(self, into: Any) -> Any:
        view = memoryview(into)
        while view:
            count = self.link.recv_into(view)
            if not count:
                raise Gone("the other end has closed the connection")
            view = view[count:]
        return into

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.link.shutdown(socket.SHUT_RDWR)
        self.link.close()


class Door:
    """Lets others in: each that knows the word is served by a thread of its own."""

    def __init__(self, word: str, serve: Callable[[Wire, Head], None], host: str = "127.0.0.1") -> None:
        self.word, self.serve = word, serve
        self.listener = socket.create_server((host, 0))
        self.port: int = self.listener.getsockname()[1]
        self.wires: list[Wire] = []
        threading.Thread(target=self._accept, name="door", daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                link, _ = self.listener.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._let_in, args=(link,), name="guest", daemon=True).start()

    def _let_in(self, link: socket.socket) -> None:
        wire = Wire(link)
        self.wires.append(wire)
        try:
            link.settimeout(PATIENCE)
            hello, _ = wire.receive()
            if not hmac.compare_digest(str(hello.get("word", "")), self.word):
                return
            link.settimeout(None)
            self.serve(wire, hello)
        except (Gone, ValueError, KeyError, TypeError, TimeoutError):
            pass  # that guest has ended, or never was one of ours
        finally:
            self.wires.remove(wire)
            wire.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)  # else the thread that accepts holds it open
        self.listener.close()
        for wire in list(self.wires):
            wire.close()


def dial(port: int, word: str, hello: Head, host: str = "127.0.0.1") -> Wire:
    """Connect to a door, and say who one is."""
    with _gone():
        link = socket.create_connection((host, port), timeout=PATIENCE)
        link.settimeout(None)
        wire = Wire(link)
        wire.send({**hello, "word": word})
        return wire


def _bytes(row: Tensor) -> memoryview:
    view: Any = row.detach().view(torch.uint8).numpy()
    return memoryview(view)


@contextlib.contextmanager
def _gone() -> Any:
    try:
        yield
    except (OSError, struct.error) as error:
        raise Gone(f"the connection to another process has ended ({error})") from error
