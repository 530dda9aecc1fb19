"""Values: what a file says, cut down to what a page can show, whatever the file is."""

import json
import math
from typing import Any

MOST_DEEP = 8  # levels of tables in tables
MOST_ITEMS = 1000  # of a list or a table
MOST_TEXT = 10_000  # characters


def number(value: object) -> float | int | None:
    """A finite number as it is; all else, true and false among it, is None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if abs(value) < 2**53 else None  # what JavaScript counts exactly


def text(value: object, most: int = 300) -> str | None:
    """A text of a sensible length; numbers become their words, all else is None."""
    if isinstance(value, str):
        return value if len(value) <= most else f"{value[: most - 1]}…"
    known = number(value)
    return None if known is None else str(known)


def dig(record: object, *names: str) -> Any:
    """The value under names within names, None where one is missing or no table."""
    for name in names:
        record = record.get(name) if isinstance(record, dict) else None
    return record


def tidy(value: Any, deep: int = MOST_DEEP) -> Any:
    """The same value with all numbers finite, texts and lists of a sensible length and no endless nesting."""
    if isinstance(value, dict | list) and deep == 0:
        return "…"
    if isinstance(value, dict):
        return {str(key)[:300]: tidy(value[key], deep - 1) for key in list(value)[:MOST_ITEMS]}
    if isinstance(value, list):
        return [tidy(each, deep - 1) for each in value[:MOST_ITEMS]]
    if isinstance(value, str):
        return text(value, MOST_TEXT)
    return value if isinstance(value, bool) else number(value)


def encode(value: Any) -> bytes:
    """A value as JSON that every browser reads: plain ASCII, in which even half a character can be said."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode("ascii")
