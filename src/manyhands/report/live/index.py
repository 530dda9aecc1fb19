"""Index: every run below a folder, known again at the price of looking whether its files have changed."""

import hashlib
import os
import secrets
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

from manyhands.report.live.entry import Entry, Found, id_of, known, readable
from manyhands.report.live.files import stamp
from manyhands.report.live.studies import FoundStudy

DEEPEST = 2  # levels below the folder, as the store looks: RUN, COMPARISON/RUN
FRESH = 0.2  # seconds for which a look counts as the present: many pages cost one look
PATIENCE = 0.03  # seconds of a look after which metrics are left for the next: the first list of many runs is prompt
MOST_WARNINGS = 100


@dataclass(frozen=True)
class Snapshot:
    """The index at one moment; it never changes, so any number of requests may read it."""

    boot: str
    version: int = 0
    entries: dict[str, Entry] = field(default_factory=dict)
    changed: dict[str, int] = field(default_factory=dict)  # the version in which a run last changed or went
    warnings: tuple[str, ...] = ()
    studies: tuple[FoundStudy, ...] = ()

    @property
    def tag(self) -> str:
        """Names this state; those of another server, or of an earlier one, mean nothing here."""
        return f"{self.boot}.{self.version}"

    def to_json(self) -> dict[str, Any]:
        return self._told(self.entries) | {"all": True}

    def since(self, tag: str) -> dict[str, Any] | None:
        """What has changed after the state that a tag names; everything where it is not ours; None for nothing."""
        boot, _, digits = tag.partition(".")
        if boot != self.boot or not (digits.isascii() and digits.isdecimal() and len(digits) < 16):
            return self.to_json()
        if int(digits) == self.version:
            return None
        return self._told([id for id, version in self.changed.items() if version > int(digits)])

    def _told(self, ids: Iterable[str]) -> dict[str, Any]:
        rows = {id: entry.row if (entry := self.entries.get(id)) else None for id in ids}
        more = len(self.warnings) - MOST_WARNINGS
        return {
            "tag": self.tag,
            "rows": [row for row in rows.values() if row],
            "gone": [id for id, row in rows.items() if not row],
            "studies": hashlib.blake2s(repr(self.studies).encode(errors="replace"), digest_size=8).hexdigest(),
            "warnings": [*self.warnings[:MOST_WARNINGS], *([f"and {more:,} more"] if more > 0 else [])],
        }


class Index:
    """Looks at a folder again and again; a look parses only what has changed since the one before."""

    def __init__(self, folder: Path) -> None:
        self.folder = os.path.realpath(folder)  # it may be a link itself: who serves it has named it
        self.lock = Lock()
        self.looked = float("-inf")
        self.took = 0.0  # seconds of a core, the last look: on a busy machine it waits far longer than that
        self.snapshot = Snapshot(secrets.token_hex(4))

    def refresh(self) -> Snapshot:
        """The folder as it is now."""
        with self.lock:
            if time.monotonic() - self.looked > FRESH:
                begun = time.thread_time()
                self.snapshot = self._look(self.snapshot)
                self.took = time.thread_time() - begun
                self.looked = time.monotonic()
            return self.snapshot

    def entry(self, id: str) -> Entry | None:
        """A run by its name in addresses. Only a look gives such names, so none leads out of the folder."""
        return self.snapshot.entries.get(id) or self.refresh().entries.get(id)

    def _look(self, before: Snapshot) -> Snapshot:
        asides, studies = list[str](), list[FoundStudy]()
        old, entries = before.entries, dict[str, Entry]()
        hurry_from = time.monotonic() + PATIENCE
        for found in _runs(self.folder, "", asides, studies):
            id = id_of(found.name)
            entries[id] = known(found, old.get(id), hurry=time.monotonic() > hurry_from)
        changed = [id for id, entry in entries.items() if entry is not old.get(id) and entry.row != _row(old.get(id))]
        changed += [id for id in old if id not in entries]
        asides += [f"{each.found.name}: {words}" for each in entries.values() for words in each.warnings]
        warnings = tuple(map(readable, asides))
        aside = (warnings, tuple(studies))
        version = before.version + bool(changed or aside != (before.warnings, before.studies))
        return Snapshot(before.boot, version, entries, {**before.changed, **dict.fromkeys(changed, version)}, *aside)


def _row(entry: Entry | None) -> dict[str, Any] | None:
    return entry.row if entry else None


def _runs(folder: str, name: str, asides: list[str], studies: list[FoundStudy], deep: int = 0) -> Iterator[Found]:
    """The runs in a folder and below it, in the order of their names; what is passed over, and studies, go aside."""
    record = stamp(os.path.join(folder, "run.json"))
    if record:
        shown = name or os.path.basename(folder)
        yield Found(folder, shown, record, stamp(os.path.join(folder, "metrics.jsonl")))
        if deep:
            return  # a run holds no other runs; the served folder may
    if study := stamp(path := os.path.join(folder, "study.json")):
        studies.append(FoundStudy(path, readable(name or os.path.basename(folder)), study))
    try:
        with os.scandir(folder) as inside:
            children = sorted(inside, key=lambda child: child.name)
    except OSError as error:
        asides.append(f"{name or folder} cannot be looked into: {error.strerror}")
        return
    for child in children:
        below = f"{name}/{child.name}" if name else child.name
        if child.is_symlink():
            if child.name == "run.json" or (deep < DEEPEST and _leads_to_folder(child.path)):
                asides.append(f"{below} is a symbolic link, and those are not followed: serve what it leads to")
        elif deep < DEEPEST and child.is_dir(follow_symlinks=False):
            yield from _runs(child.path, below, asides, studies, deep + 1)


def _leads_to_folder(link: str) -> bool:
    return os.path.isdir(link) or os.path.islink(os.path.realpath(link))  # the latter: a loop
