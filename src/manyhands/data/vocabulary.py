"""Vocabulary: words, signs and emoji of a text, and the ids that stand for them."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

PADDING, UNKNOWN = 0, 1
SPECIAL = ("<pad>", "<unknown>")
# A word with its apostrophe, @name or #tag; else one sign, without the marks that only vary or join emoji.
TOKEN = re.compile(r"[@#]?\w+(?:['’]\w+)?|[^\w\s\ufe0f\u200d]")


def tokens(text: str) -> list[str]:
    """The tokens of a text, in lower case."""
    return TOKEN.findall(text.lower())


def vocabulary(texts: Iterable[Sequence[str]], most: int) -> tuple[str, ...]:
    """The most frequent tokens, after padding and unknown; ties go by the alphabet."""
    counts = Counter(token for text in texts for token in text)
    ranked = sorted(counts, key=lambda token: (-counts[token], token))
    return (*SPECIAL, *ranked[: most - len(SPECIAL)])


def usual_length(texts: Iterable[Sequence[str]]) -> int:
    """Long enough for 95 texts of 100: a multiple of 8, at most 128."""
    percentile = float(np.percentile([len(text) for text in texts], 95))
    return int(min(128, max(8, 8 * np.ceil(percentile / 8))))


def ids(texts: Sequence[Sequence[str]], known: Sequence[str], length: int) -> NDArray[np.int32]:
    """The ids of each text, cut or padded to `length`; a text without tokens is one unknown token."""
    number = {token: each for each, token in enumerate(known)}
    rows = np.full((len(texts), length), PADDING, np.int32)
    for row, text in zip(rows, texts, strict=True):
        cut = [number.get(token, UNKNOWN) for token in text[:length]] or [UNKNOWN]
        row[: len(cut)] = cut
    return rows
