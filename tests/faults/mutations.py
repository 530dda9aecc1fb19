"""Mutations: files as a disk, an editor or somebody who means harm may leave them."""

import json
import random
import re
from collections.abc import Callable

NUMBERS = (
    b"0",
    b"-1",
    b"1e400",
    b"NaN",
    b"-Infinity",
    b"9" * 400,
    b"null",
    b'"x"',
    b"[]",
    b"{}",
    b"true",
    b"1.5",
    b"1e18",
)
TOKEN = re.compile(rb"-?\d+\.?\d*(?:[eE][-+]?\d+)?")
WORD = re.compile(rb'"[^"\\]*"')


def cut(content: bytes, rng: random.Random) -> bytes:
    return content[: rng.randrange(len(content) + 1)]


def flipped(content: bytes, rng: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 3, 30))):
        if changed:
            changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


def without(content: bytes, rng: random.Random) -> bytes:
    begin = rng.randrange(len(content) + 1)
    return content[:begin] + content[begin + rng.choice((1, 5, 50)) :]


def doubled(content: bytes, rng: random.Random) -> bytes:
    begin = rng.randrange(len(content) + 1)
    return content[: begin + 40] + content[begin:]


def other_number(content: bytes, rng: random.Random) -> bytes:
    return _replaced(content, TOKEN, rng.choice(NUMBERS), rng)


def other_word(content: bytes, rng: random.Random) -> bytes:
    words = (b'""', b'"\\ud800"', b'"../../etc"', b'"' + b"x" * 5000 + b'"', b"null", b"3", b"[1]", b'"\\u0000"')
    return _replaced(content, WORD, rng.choice(words), rng)


def _replaced(content: bytes, pattern: re.Pattern[bytes], by: bytes, rng: random.Random) -> bytes:
    found = list(pattern.finditer(content))
    if not found:
        return by
    chosen = rng.choice(found)
    return content[: chosen.start()] + by + content[chosen.end() :]


def other_value(content: bytes, rng: random.Random) -> bytes:
    """A part of a JSON document is of another kind, or not there."""
    try:
        document = json.loads(content)
    except ValueError:
        return without(content, rng)
    here = document
    while isinstance(here, dict | list) and here:
        key = rng.choice(list(here) if isinstance(here, dict) else range(len(here)))
        if not isinstance(here[key], dict | list) or rng.random() < 0.3:
            if rng.random() < 0.3:
                del here[key]
            else:
                here[key] = rng.choice((None, [], {}, "", 0, -1, 1e308, "x" * 3000, [None], {"": None}, True))
            break
        here = here[key]
    return json.dumps(document).encode()


def something_else(content: bytes, rng: random.Random) -> bytes:
    texts = (b"", b"[]", b"null", b"7", b'"text"', b"\xff\xfe{}", b"{}" * 9)
    return rng.choice((*texts, b"\0" * 1000, rng.randbytes(500), b"[" * 100_000))


MUTATIONS: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    *(cut, flipped, without, doubled, other_number, other_number, other_word, other_value, other_value, something_else),
)


def mutated(content: bytes, rng: random.Random) -> bytes:
    return rng.choice(MUTATIONS)(content, rng)
