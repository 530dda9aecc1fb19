"""Lanes: what a device does for most of a cell's time is what the cell shows."""

from manyhands.report.gantt import IDLE, LEGEND, MOST, lanes, shown
from manyhands.timeline import Event


def test_a_cell_shows_what_takes_most_of_it() -> None:
    events = [
        Event("a", "forward", "device 0", 0, 40),
        Event("a", "transfer", "device 0 link", 30, 60),  # until 40 behind the computation
        Event("a", "backward", "device 0", 60, 90),
        Event("update", "update", "device 0", 90, 100),
        Event("a", "forward", "device 1", 50, 60),
    ]
    first, second, scale, legend = lanes(events, 2, 100, 10 + len("device 0") + 3)
    assert first == "device 0 │████░░▓▓▓▒│"
    assert second == f"device 1 │{IDLE * 5}█{IDLE * 4}│"
    assert scale.endswith("0.00 ms")
    assert legend == LEGEND


def test_lines_have_one_width() -> None:
    events = [Event("a", "forward", f"device {number}", 0, 7) for number in range(12)]
    lines = lanes(events, 12, 11, 80)
    assert [len(line) for line in lines[:MOST]] == [80] * MOST
    assert f"the first {MOST} of 12 devices" in lines
    assert {event.lane for event in shown(events, 12)} == {f"device {number}" for number in range(MOST)}
