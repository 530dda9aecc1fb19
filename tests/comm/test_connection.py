"""Messages between processes: what is sent arrives as it was, and the end of one is told to the other."""

import contextlib
import hmac
import resource
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

import pytest
import torch

from manyhands.comm.connection import CHALLENGE, MOST_HEAD, REST, Connection, Gone, Head, Listener, connect
from manyhands.errors import RankError


def echo(connection: Connection, hello: Head) -> None:
    while True:
        head, rows = connection.receive()
        connection.send({**head, "from": hello["rank"]}, rows)


@pytest.fixture
def listener() -> Iterator[Listener]:
    opened = Listener("secret", echo)
    yield opened
    opened.close()


@pytest.fixture
def call(listener: Listener) -> Iterator[Callable[..., Connection]]:
    """Comes to the door; goes again when the test is over."""
    wires = []

    def dialled(rank: int, word: str = "secret") -> Connection:
        wires.append(connect(listener.port, word, {"rank": rank}))
        return wires[-1]

    yield dialled
    for connection in wires:
        connection.close()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64])
@pytest.mark.parametrize("count", [0, 1, 3_000_001])
def test_tensors_arrive_as_they_were(call, dtype: torch.dtype, count: int) -> None:
    connection = call(3)
    sent = [torch.arange(count).to(dtype), torch.ones(2, dtype=dtype)]
    into = [torch.zeros(count, dtype=dtype), torch.zeros(2, dtype=dtype)]
    head, rows = connection.ask({"kind": "push", "text": "ä\n"}, sent, into)
    assert head == {"kind": "push", "text": "ä\n", "from": 3}
    assert all(row is place for row, place in zip(rows, into, strict=True))
    assert all(torch.equal(row, other) for row, other in zip(rows, sent, strict=True))


def test_a_part_of_a_row_is_sent_and_filled(call) -> None:
    connection, row, into = call(0), torch.arange(10.0), torch.zeros(10)
    connection.ask({}, [row[3:6]], [into[5:8]])
    assert into.tolist() == [0, 0, 0, 0, 0, 3, 4, 5, 0, 0]


def test_another_size_than_expected_is_an_error(call) -> None:
    connection = call(0)
    with pytest.raises(RankError, match="were expected"):
        connection.ask({}, [torch.zeros(3)], [torch.zeros(4)])


def test_whoever_does_not_know_the_word_is_not_served(call) -> None:
    with pytest.raises(Gone):
        call(0, "guess").ask({})


def test_the_word_is_never_sent(listener: Listener) -> None:
    """A guest that meets somebody else at a port gives nothing away, and does not take it for the door."""
    heard = bytearray()
    with socket.create_server(("127.0.0.1", 0)) as other:

        def listen() -> None:
            link, _ = other.accept()
            with link:
                link.sendall(bytes(CHALLENGE))
                heard.extend(link.recv(1000))
                link.sendall(bytes(CHALLENGE))

        thread = threading.Thread(target=listen)
        thread.start()
        with pytest.raises(Gone, match="does not know the word"):
            connect(other.getsockname()[1], "secret", {"rank": 0})
        thread.join()
    assert len(heard) == 2 * CHALLENGE
    assert b"secret" not in heard


def test_an_answer_is_good_for_one_challenge(listener: Listener) -> None:
    """What was heard on one connection opens no other."""
    with socket.create_connection(("127.0.0.1", listener.port)) as first, proven(listener) as (_, said):
        first.recv(CHALLENGE)
        first.sendall(said)
        assert first.recv(1) == b""


@contextlib.contextmanager
def proven(listener: Listener) -> Iterator[tuple[socket.socket, bytes]]:
    """A connection of somebody who knows the word, and what he has said."""
    with socket.create_connection(("127.0.0.1", listener.port)) as link:
        link.settimeout(10)
        theirs = link.recv(CHALLENGE)
        said = bytes(CHALLENGE) + hmac.digest(b"secret", b"guest" + theirs + bytes(CHALLENGE), "sha256")
        link.sendall(said)
        assert len(link.recv(CHALLENGE)) == CHALLENGE
        yield link, said


GARBAGE = [
    b"GET / HTTP/1.1\r\n\r\n" + bytes(64),
    struct.pack("!I", MOST_HEAD + 1) + bytes(64),
    *(
        struct.pack("!I", len(text)) + text
        for text in (
            *(
                b"{}{",
                b"[]",
                b"7",
                b"{}",
                b'{"rows": 3}',
                b'{"rows": [["float32", -5]]}',
                b'{"rows": [["float32", 1.5]]}',
            ),
            *(b'{"rows": [["float32", 1000000000000000]]}', b'{"rows": [["pickle", 1]]}', b"[" * 100_000),
            b'{"rows": [["float32", true]]}',
        )
    ),
]


@pytest.mark.parametrize("garbage", GARBAGE, ids=range(len(GARBAGE)))
@pytest.mark.parametrize("knows", [False, True])
def test_garbage_is_shown_out_and_others_are_served(
    listener: Listener, call, recwarn: pytest.WarningsRecorder, garbage: bytes, knows: bool
) -> None:
    """Before and after the word; no thread ends with a traceback, which pytest would warn of."""
    where = (
        proven(listener)
        if knows
        else contextlib.nullcontext((socket.create_connection(("127.0.0.1", listener.port)), b""))
    )
    with where as (stranger, _):
        stranger.settimeout(30)
        with contextlib.suppress(ConnectionError):
            if not knows:
                stranger.recv(CHALLENGE)
            stranger.sendall(garbage + bytes(2 * CHALLENGE) * (not knows))
            assert stranger.recv(1) == b""
        stranger.close()
    assert call(1).ask({"a": 1})[0] == {"a": 1, "from": 1}
    assert not recwarn.list


def test_a_door_without_descriptors_lets_in_again_when_there_are_some(listener: Listener, call) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    waiting = socket.socket()
    resource.setrlimit(resource.RLIMIT_NOFILE, (waiting.fileno() + 1, before[1]))
    try:
        waiting.connect(("127.0.0.1", listener.port))  # whom the door cannot take
        time.sleep(3 * REST)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert call(1).ask({})[0]["from"] == 1
    waiting.close()


def test_the_end_of_one_is_the_end_of_its_own_wires_alone(listener: Listener, call) -> None:
    first, second = (call(rank) for rank in (1, 2))
    first.ask({})
    first.close()
    with pytest.raises(Gone):
        first.ask({})
    assert second.ask({})[0]["from"] == 2
    listener.close()
    with pytest.raises(Gone):
        second.ask({})
    with pytest.raises(Gone):
        call(3)


def test_threads_do_not_mix_their_messages(call) -> None:
    connection = call(0)
    rows = [torch.full((50_000,), float(number)) for number in range(8)]
    threads = [
        threading.Thread(target=connection.send, args=({"number": number}, [row])) for number, row in enumerate(rows)
    ]
    for thread in threads:
        thread.start()
    seen = []
    for _ in threads:
        head, (row,) = connection.receive()
        assert torch.equal(row, rows[head["number"]])
        seen.append(head["number"])
    for thread in threads:
        thread.join()
    assert sorted(seen) == list(range(8))
