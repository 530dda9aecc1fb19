"""Tokens of tweets."""

import pytest

from manyhands.data import tokens


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello, World!", ["hello", ",", "world", "!"]),
        ("don't @User #Tag2", ["don't", "@user", "#tag2"]),
        ("❤️😂😂 ok", ["❤", "😂", "😂", "ok"]),
        ("Café ÜBER 北京", ["café", "über", "北京"]),
        (" \u2028\t", []),
    ],
)
def test_tokens(text: str, expected: list[str]) -> None:
    assert tokens.tokens(text) == expected


def test_the_vocabulary_is_by_count_then_alphabet() -> None:
    assert tokens.vocabulary([["b", "c"], ["a", "c"]], 5) == ("<pad>", "<unknown>", "c", "a", "b")
    assert tokens.vocabulary([["b", "c"], ["a", "c"]], 3) == ("<pad>", "<unknown>", "c")


@pytest.mark.parametrize(("words", "length"), [(1, 8), (8, 8), (9, 16), (500, 128)])
def test_the_usual_length(words: int, length: int) -> None:
    assert tokens.usual_length([["a"] * words] * 10) == length
