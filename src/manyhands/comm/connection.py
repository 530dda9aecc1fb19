"""Connection: messages between two processes of which either may end at any time.

    │ bytes of the head │ head, as JSON │ first tensor │ second tensor │ …

Torch's process groups end with the first rank that dies, and nobody can join them later. Here the end of one process is
the end of its own connections alone. Nothing that is received is ever executed: heads are JSON, tensors are numbers.

Who comes to a door proves first that it knows the word, and so does the door; the word itself is never sent:

    door     challenge, 32 bytes ─→
    guest                        ←─ challenge of its own, HMAC of both by the word
    door     HMAC of both, otherwise made ─→
"""

import contextlib
import hmac
import json
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import psutil
import torch
from torch import Tensor

from manyhands.errors import RankError

Head = dict[str, Any]

HEAD = struct.Struct("!I")
MOST_HEAD = 1 << 20  # bytes; whoever sends more does not speak this language
MOST_BYTES = psutil.virtual_memory().total  # of the tensors of one message
MOST_ROWS = 10_000  # tensors
MOST_GUESTS = 256  # that a door has at once, those that have not said the word yet among them
CHALLENGE = 32  # bytes
PATIENCE = 60.0  # seconds to say who one is, or to be let in
REST = 0.1  # seconds after which a door that could not let anybody in tries again
TYPES = {str(each).removeprefix("torch."): each for each in (torch.float32, torch.float64, torch.bfloat16, torch.int64)}


class Gone(RankError):
    """The other end has ended."""


class Connection:
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
            (length,) = HEAD.unpack(self.exactly(bytearray(HEAD.size)))
            if length > MOST_HEAD:
                raise Gone(f"a head of {length} bytes was sent, {MOST_HEAD} are allowed")
            head, kinds = _read(self.exactly(bytearray(length)))
            if into and kinds != [(row.dtype, row.numel()) for row in into]:
                raise RankError(f"tensors {kinds} were sent, {[list(row.shape) for row in into]} were expected")
            rows = list(into) or [torch.empty(count, dtype=kind) for kind, count in kinds]
            for row in rows:
                self.exactly(_bytes(row))
            return head, rows

    def ask(self, head: Head, rows: Sequence[Tensor] = (), into: Sequence[Tensor] = ()) -> tuple[Head, list[Tensor]]:
        """Send, and wait for the answer."""
        self.send(head, rows)
        return self.receive(into)

    def exactly(self, into: Any) -> Any:
        """Fill a piece of memory with what comes."""
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


class Listener:
    """Lets others in: each that knows the word is served by a thread of its own."""

    def __init__(self, word: str, serve: Callable[[Connection, Head], None], host: str = "127.0.0.1") -> None:
        self.word, self.serve = word, serve
        self.listener = socket.create_server((host, 0))
        self.port: int = self.listener.getsockname()[1]
        self.wires: list[Connection] = []
        self.closed = False
        threading.Thread(target=self._accept, name="door", daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                link, _ = self.listener.accept()
            except OSError:
                if self.closed:
                    return
                time.sleep(REST)  # no descriptor is left, say: others may be given back
                continue
            if len(self.wires) >= MOST_GUESTS:
                link.close()
                continue
            try:
                threading.Thread(target=self._let_in, args=(link,), name="guest", daemon=True).start()
            except RuntimeError:  # no thread is left
                link.close()

    def _let_in(self, link: socket.socket) -> None:
        connection = Connection(link)
        self.wires.append(connection)
        try:
            link.settimeout(PATIENCE)
            if not self._knows(connection):
                return
            hello, _ = connection.receive()
            link.settimeout(None)
            self.serve(connection, hello)
        except (RankError, ValueError, KeyError, TypeError, TimeoutError):
            pass  # that guest has ended, or never was one of ours
        finally:
            self.wires.remove(connection)
            connection.close()

    def _knows(self, connection: Connection) -> bool:
        """Whether who has come knows the word; then it is shown that so does the door."""
        with _gone():
            mine = secrets.token_bytes(CHALLENGE)
            connection.link.sendall(mine)
            answer = bytes(connection.exactly(bytearray(2 * CHALLENGE)))
            theirs, proof = answer[:CHALLENGE], answer[CHALLENGE:]
            if not hmac.compare_digest(proof, _proof(self.word, b"guest", mine, theirs)):
                return False
            connection.link.sendall(_proof(self.word, b"door", mine, theirs))
            return True

    def close(self) -> None:
        self.closed = True
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)  # else the thread that accepts holds it open
        self.listener.close()
        for connection in list(self.wires):
            connection.close()


def connect(port: int, word: str, hello: Head, host: str = "127.0.0.1") -> Connection:
    """Connect to a door, and say who one is."""
    with _gone():
        connection = Connection(socket.create_connection((host, port), timeout=PATIENCE))
    try:
        with _gone():
            theirs, mine = bytes(connection.exactly(bytearray(CHALLENGE))), secrets.token_bytes(CHALLENGE)
            connection.link.sendall(mine + _proof(word, b"guest", theirs, mine))
            answer = bytes(connection.exactly(bytearray(CHALLENGE)))
            if not hmac.compare_digest(answer, _proof(word, b"door", theirs, mine)):
                raise Gone("whoever answers at that port does not know the word of this run")
            connection.link.settimeout(None)
            connection.send(hello)
    except BaseException:
        connection.close()
        raise
    return connection


def _proof(word: str, whose: bytes, one: bytes, other: bytes) -> bytes:
    return hmac.digest(word.encode(), whose + one + other, "sha256")


def _read(text: bytearray) -> tuple[Head, list[tuple[torch.dtype, int]]]:
    """A head, and the type and length of each tensor that follows."""
    try:
        head = json.loads(text)
        kinds = [(TYPES[kind], count) for kind, count in head.pop("rows")]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Gone(f"what was sent is no message ({type(error).__name__})") from None
    counts = [count for _, count in kinds]
    if len(kinds) > MOST_ROWS or not all(type(count) is int and count >= 0 for count in counts):
        raise Gone(f"tensors of {counts[:3]} numbers were sent, which none can have")
    if (size := sum(kind.itemsize * count for kind, count in kinds)) > MOST_BYTES:
        raise Gone(f"{size:,} bytes were sent, at most {MOST_BYTES:,} are allowed")
    return head, kinds


def _bytes(row: Tensor) -> memoryview:
    view: Any = row.detach().view(torch.uint8).numpy()
    return memoryview(view)


@contextlib.contextmanager
def _gone() -> Any:
    try:
        yield
    except (OSError, struct.error) as error:
        raise Gone(f"the connection to another process has ended ({error})") from error
