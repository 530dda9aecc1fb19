"""A report's page, taken apart: its tags in order, its text, and what its scripts draw."""

import json
import re
from collections import Counter
from html.parser import HTMLParser
from typing import Any

from manyhands.report.gather import Report
from manyhands.report.page.page import page

VOID = {"meta", "br", "link", "img"}


class Checked(HTMLParser):
    """Tags that open and close in order, their ids, the text between them, and what scripts hold."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: Counter[str] = Counter()
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str | None]] = []
        self.words: list[str] = []
        self.scripts: list[str] = []
        self.feed(html)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.ids.update(value for name, value in attrs if name == "id" and value)
        self.attributes.extend(attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "script" in self.open:
            self.scripts.append(data)
        elif "style" not in self.open:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    @property
    def figures(self) -> list[list[dict[str, Any]]]:
        """What the page's script draws."""
        found: list[list[dict[str, Any]]] = json.loads(self.scripts[0])
        return found


def checked(report: Report) -> Checked:
    found = Checked(page(report))
    assert not [each for each, count in found.ids.items() if count > 1], "ids are unique"
    assert not re.search(r"\b(nan|inf|None)\b", found.text)
    return found
