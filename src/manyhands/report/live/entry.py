"""Entry: a run as the index knows it, and how it is known again."""

import hashlib
import os
from dataclasses import dataclass
from typing import Any

from manyhands.errors import InputError
from manyhands.report.live.files import Stamp
from manyhands.report.live.glance import NOTHING, Glance, glance
from manyhands.report.live.metrics import MOST_BYTES
from manyhands.report.live.row import Order, load, order_of, row


@dataclass(frozen=True)
class Found:
    """A run's folder, its name below the served one, and the state of its two files that change."""

    folder: str
    name: str
    record: Stamp
    metrics: Stamp | None

    @property
    def changed(self) -> float:
        """When, in seconds of the system's clock."""
        return max(self.record[0], self.metrics[0] if self.metrics else 0) / 1e9


@dataclass(frozen=True)
class Entry:
    """What the list shows of a run; no order and no row where its run.json is damaged."""

    found: Found
    order: Order | None = None
    glance: Glance = NOTHING
    seen: bool = False  # the glance is of the metrics as they were found
    row: dict[str, Any] | None = None
    warnings: tuple[str, ...] = ()

    @property
    def running(self) -> bool:
        """Of such a run it must be asked again and again whether it is still there."""
        return self.order is not None and self.order.facts["status"] == "running"


def id_of(name: str) -> str:
    """A run's name in addresses: the same in every session, and short and plain whatever its folder is called."""
    return hashlib.blake2s(os.fsencode(name), digest_size=6).hexdigest()


def known(found: Found, before: Entry | None, hurry: bool) -> Entry:
    """The run as it is; what has not changed is not read again, and in a hurry the metrics are left for later."""
    seen = before is not None and before.found == found and before.seen
    if before and seen and not before.running:
        return before
    try:
        order = before.order if before and before.found.record == found.record else None
        order = order or order_of(load(os.path.join(found.folder, "run.json")))
    except InputError as error:
        return Entry(found, seen=True, warnings=(str(error),))
    look, warnings = (before.glance, before.warnings) if before else (NOTHING, ())
    if not seen and not hurry:
        look, warnings = _glance(found, order.facts["status"] == "finished")
        seen = True
    folder, name = os.path.split(readable(found.name))
    shown = {"id": id_of(found.name), "name": name, "folder": folder, **row(order, look, found.changed)}
    return Entry(found, order, look, seen, shown, warnings)


def readable(name: str) -> str:
    """A name of bytes that are no UTF-8 is shown with marks in their place."""
    return os.fsencode(name).decode(errors="replace")


def _glance(found: Found, ended: bool) -> tuple[Glance, tuple[str, ...]]:
    if found.metrics is None:
        return NOTHING, ()
    size, warnings = found.metrics[1], ()  # type: int, tuple[str, ...]
    if size > MOST_BYTES:
        warnings = (f"metrics.jsonl has {size / 1e6:,.0f} MB: what is beyond {MOST_BYTES / 1e6:,.0f} is not read",)
    try:
        return glance(os.path.join(found.folder, "metrics.jsonl"), ended), warnings
    except InputError as error:
        return NOTHING, (str(error),)
