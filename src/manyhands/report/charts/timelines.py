"""Timelines: what a run was busy with and when, with what was predicted below it on the same clock."""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from manyhands.errors import UNREADABLE
from manyhands.report.charts.palette import BRIGHT, FIRST
from manyhands.report.charts.spec import Axis, Chart, Panel, Series
from manyhands.report.data.summary import Row
from manyhands.timeline import Event, Timeline

MEASURED, PREDICTED = "timeline.json", "predicted.json"
STEP = "layers of one step"  # a lane with a clock of its own
MOST_RUNS = 6
MOST_LANES = 64
MOST_EVENTS = 1500  # in a chart
MOST_BYTES = 64_000_000
COLOURS = {
    "setup": 6,
    "search": 5,
    "compile": 4,
    "train": 1,
    "step": 1,
    "eval": 3,
    "evaluate": 3,
    "checkpoint": 7,
    "layers": 0,
    "forward": 6,
    "backward": 2,
    "update": 3,
    "feed": 5,
    "transfer": 4,
    "collective": 7,
}


def panel(table: Sequence[Row]) -> tuple[Panel | None, list[tuple[Path, str]]]:
    """A tab for each of the first cases, by their first run; and the timelines that cannot be read, with the reason."""
    charts: dict[str, Chart] = {}
    damaged: list[tuple[Path, str]] = []
    found = [(row.label, folder) for row in table if (folder := _folder(row))]
    for number, (label, folder) in enumerate(found[:MOST_RUNS]):
        try:
            measured = _load(folder / MEASURED)
            predicted = _load(folder / PREDICTED) if (folder / PREDICTED).exists() else ()
        except UNREADABLE as error:
            damaged.append((folder, f"its timeline cannot be read ({str(error)[:200] or type(error).__name__})"))
            continue
        for part, chart in _charts(f"timeline-{number}", label, measured, predicted):
            charts[f"{label}: {part}" if len(found) > 1 else part] = chart
    note = f"The first {MOST_RUNS} of {len(found)} cases." if len(found) > MOST_RUNS else ""
    return (Panel("Timeline", charts, note) if charts else None), damaged


def _folder(row: Row) -> Path | None:
    """That of the first run which left a timeline."""
    return next((run.folder for run in row.runs if (run.folder / MEASURED).exists()), None)


def _load(path: Path) -> tuple[Event, ...]:
    if path.lstat().st_size > MOST_BYTES:
        raise ValueError(f"over {MOST_BYTES / 1e6:.0f} MB")
    return Timeline.load(path).events


def _charts(
    name: str, label: str, measured: Sequence[Event], predicted: Sequence[Event]
) -> Iterator[tuple[str, Chart]]:
    """The whole run, and one step of it; the prediction goes with the one that is about as long."""
    parts = {
        "the run": [event for event in measured if event.lane != STEP],
        "one step": [event for event in measured if event.lane == STEP],
    }
    parts = {part: events for part, events in parts.items() if events}
    nearest = min(parts, key=lambda part: abs(math.log(_length(parts[part]) / _length(predicted))), default=None)
    for part, events in parts.items():
        beside = predicted if part == nearest else ()
        scale, unit = (1e6, "milliseconds") if _length([*events, *beside]) < 2e9 else (1e9, "seconds")
        lanes = _lanes(events, "measured: " if beside else "") | _lanes(beside, "predicted: ")
        yield part, _chart(f"{name}-{part.replace(' ', '-')}", f"{label}: {part}", lanes, scale, unit)


def one_step(name: str, title: str, events: Sequence[Event]) -> Chart:
    """A step, lane by lane."""
    return _chart(name, title, _lanes(events, ""), 1e6, "milliseconds")


def _length(events: Sequence[Event]) -> int:
    """How many nanoseconds pass from its beginning to its end; at least one, also without events."""
    return max(1, max((event.end_ns for event in events), default=0))


def _lanes(events: Sequence[Event], prefix: str) -> dict[str, list[Event]]:
    lanes: dict[str, list[Event]] = {}
    for event in events:
        lanes.setdefault(f"{prefix}{event.lane}", []).append(event)
    return {lane: lanes[lane] for lane in sorted(lanes)[:MOST_LANES]}


def _chart(name: str, title: str, lanes: dict[str, list[Event]], scale: float, unit: str) -> Chart:
    by_category: dict[str, list[tuple[int, Event]]] = {}
    for place, events in enumerate(lanes.values()):
        for event in _joined(events, MOST_EVENTS // len(lanes)):
            by_category.setdefault(event.category, []).append((place, event))
    series = tuple(
        Series(
            category,
            COLOURS.get(category, FIRST + number % BRIGHT),
            "spans",
            x=tuple((event.end_ns - event.start_ns) / scale for _, event in events),
            y=tuple(float(place) for place, _ in events),
            start=tuple(event.start_ns / scale for _, event in events),
            words=tuple(event.name for _, event in events),
        )
        for number, (category, events) in enumerate(by_category.items())
    )
    return Chart(name, title, Axis(unit, from_zero=True), Axis(names=tuple(lanes)), series)


def _joined(events: Sequence[Event], most: int) -> list[Event]:
    """Neighbours of one category as one, where the lane has too many to be seen apart: the closest first."""
    while len(events) > most:
        gaps = sorted(after.start_ns - before.end_ns for before, after in _alike(events))
        if not gaps:
            return sorted(events, key=lambda event: event.start_ns - event.end_ns)[:most]  # the longest
        widest = gaps[min(len(events) - most, len(gaps)) - 1]
        events = _join(events, widest)
    return list(events)


def _alike(events: Sequence[Event]) -> Iterator[tuple[Event, Event]]:
    return ((one, two) for one, two in pairwise(events) if one.category == two.category)


def _join(events: Sequence[Event], widest: int) -> list[Event]:
    joined = [events[0]]
    for event in events[1:]:
        last = joined[-1]
        if event.category == last.category and event.start_ns - last.end_ns <= widest:
            name = last.name.partition(" … ")[0]
            joined[-1] = Event(
                f"{name} … {event.name}", last.category, last.lane, last.start_ns, max(last.end_ns, event.end_ns)
            )
        else:
            joined.append(event)
    return joined
