"""Timeline: what happens when, on which device or link; predicted and measured ones share this format."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from manyhands.files import read, write_text

LONGEST = 1e15  # microseconds, some thirty years
MOST_BYTES = 500_000_000  # of a trace


@dataclass(frozen=True)
class Event:
    """One thing that a lane (a device, a link, the host) is busy with. Times are integer nanoseconds."""

    name: str
    category: str  # feed | step | forward | backward | update | evaluate | checkpoint | transfer | collective
    lane: str
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class Timeline:
    """Events in the order of their start."""

    events: tuple[Event, ...]

    @classmethod
    def of(cls, events: Iterable[Event]) -> "Timeline":
        return cls(tuple(sorted(events, key=lambda event: (event.start_ns, event.end_ns, event.lane, event.name))))

    def to_chrome(self) -> dict[str, Any]:
        """The trace-event format that chrome://tracing and Perfetto open; its unit is the microsecond."""
        lanes = {lane: number for number, lane in enumerate(sorted({event.lane for event in self.events}))}
        names = [
            {"ph": "M", "name": "thread_name", "pid": 0, "tid": number, "args": {"name": lane}}
            for lane, number in lanes.items()
        ]
        spans = [
            {
                "ph": "X",
                "name": event.name,
                "cat": event.category,
                "pid": 0,
                "tid": lanes[event.lane],
                "ts": event.start_ns / 1000,
                "dur": (event.end_ns - event.start_ns) / 1000,
            }
            for event in self.events
        ]
        return {"displayTimeUnit": "ms", "traceEvents": names + spans}

    @classmethod
    def from_chrome(cls, trace: dict[str, Any]) -> "Timeline":
        """What `to_chrome` made; ValueError and its like where it is not."""
        if any(abs(row["ts"]) + abs(row["dur"]) > LONGEST for row in trace["traceEvents"] if row["ph"] == "X"):
            raise ValueError(f"a time of more than {LONGEST:g} microseconds")
        lanes = {row["tid"]: row["args"]["name"] for row in trace["traceEvents"] if row["ph"] == "M"}
        return cls.of(
            Event(
                _text(row["name"]),
                _text(row["cat"]),
                _text(lanes[row["tid"]]),
                start := round(row["ts"] * 1000),
                start + round(row["dur"] * 1000),
            )
            for row in trace["traceEvents"]
            if row["ph"] == "X"
        )

    def save(self, path: Path) -> None:
        write_text(path, json.dumps(self.to_chrome()))

    @classmethod
    def load(cls, path: Path) -> "Timeline":
        return cls.from_chrome(json.loads(read(path, MOST_BYTES)))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{str(value)[:40]!r} in the place of a name")
    return value
