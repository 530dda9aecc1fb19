"""Detail: all that a page shows of one run, and of some runs side by side."""

import json
import os
from collections import OrderedDict
from threading import Lock
from typing import Any

from manyhands.errors import InputError
from manyhands.files import read, tail
from manyhands.report.live.entry import Entry
from manyhands.report.live.files import Cache, stamp
from manyhands.report.live.metrics import Metrics
from manyhands.report.live.row import load
from manyhands.report.live.values import text, tidy
from manyhands.timeline import Timeline

MOST_EVENTS = 2000  # that a browser draws and zooms without stuttering
MOST_TIMELINE = 32_000_000  # bytes
LOG_TAIL = 16_000  # bytes
KEPT = 200  # runs whose curves are kept to be read on: four of the largest comparisons

KINDS = {  # the parts of run.json that the page shows; one that is something else is left out
    **dict.fromkeys(("config", "plan", "machine", "versions", "result"), dict),
    **dict.fromkeys(("ranks", "layers", "trials"), list),
    **dict.fromkeys(("plan_words", "machine_words", "command", "error"), str),
    "parameters": int,
}
COMPARED = ("config", "plan", "versions", "machine_words", "samples", "parameters")


class Details:
    """Reads runs in full; what has not changed since the last time is not read again."""

    def __init__(self) -> None:
        self.records = Cache(lambda path: tidy(load(path)), most=KEPT)
        self.timelines = Cache(timeline, most=16)
        self.metrics: OrderedDict[str, Metrics] = OrderedDict()
        self.lock = Lock()

    def of(self, entry: Entry) -> dict[str, Any]:
        """One run: its row, the parts of run.json that people read, curve, timelines, the end of the log."""
        record, warnings = self._record(entry)
        curve, bad = self._curve(entry)
        timelines: dict[str, Any] = {"measured": None, "predicted": None}
        for kind, name in zip(timelines, ("timeline.json", "predicted.json"), strict=True):
            try:
                timelines[kind] = self.timelines.of(os.path.join(entry.found.folder, name))
            except InputError as error:
                bad.append(str(error))
        return {
            "row": entry.row,
            "record": {name: _part(record.get(name), kind) for name, kind in KINDS.items()},
            "curve": curve,
            "timelines": timelines,
            "log": _log(entry.found.folder),
            "warnings": [*warnings, *bad],
        }

    def compared(self, entries: list[Entry]) -> dict[str, Any]:
        """Runs side by side: rows, curves, and each key of their orders in which they differ."""
        rows, curves, orders, warnings = [], [], [], list[str]()
        for entry in entries:
            record, wrong = self._record(entry)
            curve, bad = self._curve(entry)
            rows.append(entry.row)
            curves.append(curve)
            orders.append(_flat({name: record.get(name) for name in COMPARED}))
            warnings += [f"{entry.row['name']}: {words}" for words in (*wrong, *bad) if entry.row]
        return {"rows": rows, "curves": curves, "differs": _differing(orders), "warnings": warnings}

    def _record(self, entry: Entry) -> tuple[dict[str, Any], list[str]]:
        try:
            return self.records.of(os.path.join(entry.found.folder, "run.json")) or {}, []
        except InputError as error:  # damaged after the index has read it
            return {}, [str(error)]

    def _curve(self, entry: Entry) -> tuple[dict[str, Any], list[str]]:
        path = os.path.join(entry.found.folder, "metrics.jsonl")
        with self.lock:
            metrics = self.metrics.setdefault(path, Metrics(path))
            self.metrics.move_to_end(path)
            while len(self.metrics) > KEPT:
                self.metrics.popitem(last=False)
        return metrics.read()


def timeline(path: str) -> dict[str, Any]:
    """A Chrome trace as lanes and events [lane, name, category, start, duration] in milliseconds, the longest ones."""
    try:
        events = Timeline.from_chrome(json.loads(read(path, MOST_TIMELINE))).events
        lanes = {lane: at for at, lane in enumerate(sorted({event.lane for event in events}))}
        longest = sorted(events, key=lambda event: event.start_ns - event.end_ns)[:MOST_EVENTS]
        return {
            "lanes": [text(lane) for lane in lanes],
            "events": [
                [
                    lanes[event.lane],
                    text(event.name),
                    text(event.category),
                    event.start_ns / 1e6,
                    (event.end_ns - event.start_ns) / 1e6,
                ]
                for event in sorted(longest, key=lambda event: event.start_ns)
            ],
            "left_out": len(events) - len(longest),
        }
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise InputError(f"{os.path.basename(path)} is no timeline: {type(error).__name__} {error}") from None


def _part(value: Any, kind: type) -> Any:
    if isinstance(value, list) and kind is list:
        return [each for each in value if isinstance(each, dict)]
    return value if isinstance(value, kind) else None


def _log(folder: str) -> str:
    path = os.path.join(folder, "log.txt")
    try:
        return tail(path, LOG_TAIL).decode(errors="replace") if stamp(path) else ""
    except InputError as error:
        return str(error)


def _flat(value: Any, name: str = "") -> dict[str, str]:
    """The values of tables in tables, each under its dotted name, as text."""
    if not isinstance(value, dict):
        return {name: _words(value)}
    found: dict[str, str] = {}
    for key, each in value.items():
        found |= _flat(each, f"{name}.{key}" if name else key)
    return found


def _words(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(each, str | int | float) for each in value):
        return ", ".join(map(str, value))
    return value if isinstance(value, str) else json.dumps(value)


def _differing(orders: list[dict[str, str]]) -> dict[str, list[str | None]]:
    """A value a run for each key that is not the same in all."""
    keys = dict.fromkeys(key for order in orders for key in order)
    columns = {key: [text(order.get(key), 120) for order in orders] for key in keys}
    return {key.removeprefix("config."): values for key, values in columns.items() if len(set(values)) > 1}
