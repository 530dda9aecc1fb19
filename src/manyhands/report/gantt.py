"""Gantt: a step's timeline as lines of text, one for each device."""

from collections.abc import Sequence

from manyhands.timeline import Event

MOST = 8  # devices that are drawn
SIGNS = {"forward": "█", "backward": "▓", "update": "▒", "transfer": "░", "collective": "░"}
COMPUTING = ("forward", "backward", "update")
IDLE = "·"
LEGEND = "█ forward  ▓ backward  ▒ update  ░ transfer while nothing is computed  · idle"


def shown(events: Sequence[Event], devices: int) -> list[Event]:
    """The events of the devices that are drawn, in the order of devices."""
    drawn = {f"device {number}{link}" for number in range(min(devices, MOST)) for link in ("", " link")}
    return [event for event in events if event.lane in drawn]


def lanes(events: Sequence[Event], devices: int, step_ns: int, width: int) -> list[str]:
    """A line for each of the first devices, as wide as the terminal: what it does for most of each cell's time."""
    label = len(f"device {min(devices, MOST) - 1}")
    cells = max(width - label - 3, 10)
    lines = []
    for number in range(min(devices, MOST)):
        name = f"device {number}"
        mine = [event for event in events if event.lane in (name, f"{name} link")]
        lines.append(f"{name:<{label}} │{_lane(mine, step_ns, cells)}│")
    end = f"{step_ns / 1e6:,.2f} ms"
    lines.append(" " * (label + 2) + "0" + end.rjust(cells - 1))
    if devices > MOST:
        lines.append(f"the first {MOST} of {devices} devices")
    return [*lines, LEGEND]


def _lane(events: Sequence[Event], step_ns: int, cells: int) -> str:
    signs = []
    spent = [dict.fromkeys(SIGNS, 0.0) for _ in range(cells)]
    for event in events:
        first, last = (min(cells * at // step_ns, cells - 1) for at in (event.start_ns, max(event.end_ns - 1, 0)))
        for cell in range(first, last + 1):
            begin, end = cell * step_ns / cells, (cell + 1) * step_ns / cells
            spent[cell][event.category] += max(min(event.end_ns, end) - max(event.start_ns, begin), 0.0)
    for each in spent:
        computed = sum(each[name] for name in COMPUTING)
        moved = max(each["transfer"], each["collective"])
        # A device that computes at all is not idle for the eye, and what moves meanwhile costs nothing.
        if computed >= step_ns / cells / 2 or (computed and computed >= moved):
            signs.append(SIGNS[max(COMPUTING, key=lambda name, each=each: each[name])])  # type: ignore[misc]
        else:
            signs.append(SIGNS["transfer"] if moved >= step_ns / cells / 2 else IDLE)
    return "".join(signs)
