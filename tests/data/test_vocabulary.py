"""Tokens of tweets."""

import pytest

from manyhands.data import vocabulary


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
    assert vocabulary.tokens(text) == expected


def test_the_vocabulary_is_by_count_then_alphabet() -> None:
    assert vocabulary.vocabulary([["b", "c"], ["a", "c"]], 5) == ("<pad>", "<unknown>", "c", "a", "b")
    assert vocabulary.vocabulary([["b", "c"], ["a", "c"]], 3) == ("<pad>", "<unknown>", "c")


@pytest.mark.parametrize(("words", "length"), [(1, 8), (8, 8), (9, 16), (500, 128)])
def test_the_usual_length(words: int, length: int) -> None:
    assert vocabulary.usual_length([["a"] * words] * 10) == length
