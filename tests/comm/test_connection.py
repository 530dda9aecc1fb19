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

from manyhands.comm.connection import CHALLENGE, MOST_HEAD, REST, Door, Gone, Head, Wire, dial
from manyhands.errors import RankError


def echo(wire: Wire, hello: Head) -> None:
    while True:
        head, rows = wire.receive()
        wire.send({**head, "from": hello["rank"]}, rows)


@pytest.fixture
def door() -> Iterator[Door]:
    opened = Door("secret", echo)
    yield opened
    opened.close()


@pytest.fixture
def call(door: Door) -> Iterator[Callable[..., Wire]]:
    """Comes to the door; goes again when the test is over."""
    wires = []

    def dialled(rank: int, word: str = "secret") -> Wire:
        wires.append(dial(door.port, word, {"rank": rank}))
        return wires[-1]

    yield dialled
    for wire in wires:
        wire.close()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64])
@pytest.mark.parametrize("count", [0, 1, 3_000_001])
def test_tensors_arrive_as_they_were(call, dtype: torch.dtype, count: int) -> None:
    wire = call(3)
    sent = [torch.arange(count).to(dtype), torch.ones(2, dtype=dtype)]
    into = [torch.zeros(count, dtype=dtype), torch.zeros(2, dtype=dtype)]
    head, rows = wire.ask({"kind": "push", "text": "ä\n"}, sent, into)
    assert head == {"kind": "push", "text": "ä\n", "from": 3}
    assert all(row is place for row, place in zip(rows, into, strict=True))
    assert all(torch.equal(row, other) for row, other in zip(rows, sent, strict=True))


def test_a_part_of_a_row_is_sent_and_filled(call) -> None:
    wire, row, into = call(0), torch.arange(10.0), torch.zeros(10)
    wire.ask({}, [row[3:6]], [into[5:8]])
    assert into.tolist() == [0, 0, 0, 0, 0, 3, 4, 5, 0, 0]


def test_another_size_than_expected_is_an_error(call) -> None:
    wire = call(0)
    with pytest.raises(RankError, match="were expected"):
        wire.ask({}, [torch.zeros(3)], [torch.zeros(4)])


def test_whoever_does_not_know_the_word_is_not_served(call) -> None:
    with pytest.raises(Gone):
        call(0, "guess").ask({})


def test_the_word_is_never_sent(door: Door) -> None:
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
            dial(other.getsockname()[1], "secret", {"rank": 0})
        thread.join()
    assert len(heard) == 2 * CHALLENGE
    assert b"secret" not in heard


def test_an_answer_is_good_for_one_challenge(door: Door) -> None:
    """What was heard on one connection opens no other."""
    with socket.create_connection(("127.0.0.1", door.port)) as first, proven(door) as (_, said):
        first.recv(CHALLENGE)
        first.sendall(said)
        assert first.recv(1) == b""


@contextlib.contextmanager
def proven(door: Door) -> Iterator[tuple[socket.socket, bytes]]:
    """A connection of somebody who knows the word, and what he has said."""
    with socket.create_connection(("127.0.0.1", door.port)) as link:
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
    door: Door, call, recwarn: pytest.WarningsRecorder, garbage: bytes, knows: bool
) -> None:
    """Before and after the word; no thread ends with a traceback, which pytest would warn of."""
    where = proven(door) if knows else contextlib.nullcontext((socket.create_connection(("127.0.0.1", door.port)), b""))
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


def test_a_door_without_descriptors_lets_in_again_when_there_are_some(door: Door, call) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    waiting = socket.socket()
    resource.setrlimit(resource.RLIMIT_NOFILE, (waiting.fileno() + 1, before[1]))
    try:
        waiting.connect(("127.0.0.1", door.port))  # whom the door cannot take
        time.sleep(3 * REST)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert call(1).ask({})[0]["from"] == 1
    waiting.close()


def test_the_end_of_one_is_the_end_of_its_own_wires_alone(door: Door, call) -> None:
    first, second = (call(rank) for rank in (1, 2))
    first.ask({})
    first.close()
    with pytest.raises(Gone):
        first.ask({})
    assert second.ask({})[0]["from"] == 2
    door.close()
    with pytest.raises(Gone):
        second.ask({})
    with pytest.raises(Gone):
        call(3)


def test_threads_do_not_mix_their_messages(call) -> None:
    wire = call(0)
    rows = [torch.full((50_000,), float(number)) for number in range(8)]
    threads = [threading.Thread(target=wire.send, args=({"number": number}, [row])) for number, row in enumerate(rows)]
    for thread in threads:
        thread.start()
    seen = []
    for _ in threads:
        head, (row,) = wire.receive()
        assert torch.equal(row, rows[head["number"]])
        seen.append(head["number"])
    for thread in threads:
        thread.join()
    assert sorted(seen) == list(range(8))
