"""HTML pieces: whatever is not marked as HTML already is escaped."""

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from string import Template


class Html(str):
    """Text that is HTML already; everything else is escaped before it enters a page."""

    __slots__ = ()


def text(value: object) -> Html:
    """A value as HTML."""
    return value if isinstance(value, Html) else Html(html.escape(str(value)))


def fill(template: str, **values: object) -> Html:
    """A template with $names, each escaped unless it is HTML."""
    return Html(Template(template).substitute({name: text(value) for name, value in values.items()}))


def join(parts: Iterable[object]) -> Html:
    return Html("".join(map(text, parts)))


@dataclass(frozen=True)
class Section:
    """A part of the page under its own heading."""

    title: str
    body: Html


def section(title: str, *parts: object) -> Section:
    return Section(title, join(parts))


def paragraph(words: object, kind: str = "") -> Html:
    return fill('<p class="$kind">$words</p>', kind=kind, words=words)


def prose(words: object) -> Html:
    """A cell that may break its lines."""
    return fill('<div class="prose">$words</div>', words=words)


def dotted(label: object, place: int) -> Html:
    """A label with a dot in the colour of a place in the palette."""
    return fill('<span class="dot" style="background:var(--c$place)"></span>$label', place=place, label=label)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], words: int = 1) -> Html:
    """A table that scrolls on its own when it is wider than the page; the first `words` columns are no numbers."""
    kinds = ["" if number < words else "number" for number in range(len(columns))]
    head = fill("<thead>$line</thead>", line=_line("th", columns, kinds)) if any(columns) else ""
    body = join(_line("td", row, kinds) for row in rows)
    return fill('<div class="scroll" tabindex="0"><table>$head<tbody>$body</tbody></table></div>', head=head, body=body)


def facts(told: Mapping[str, object]) -> Html:
    """Names and what they stand for; those without anything are left out."""
    known = (fill("<dt>$name</dt><dd>$fact</dd>", name=name, fact=fact) for name, fact in told.items() if fact)
    return fill("<dl>$known</dl>", known=join(known))


def details(title: object, *parts: object) -> Html:
    """Something that the reader may open."""
    return fill("<details><summary>$title</summary>$body</details>", title=title, body=join(parts))


def _line(tag: str, cells: Sequence[object], kinds: Sequence[str]) -> Html:
    parts = (
        fill('<$tag class="$kind">$cell</$tag>', tag=tag, kind=kind, cell=cell)
        for cell, kind in zip(cells, kinds, strict=True)
    )
    return fill("<tr>$cells</tr>", cells=join(parts))
