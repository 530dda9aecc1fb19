"""A timeline survives its Chrome trace to the nanosecond."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from manyhands.timeline import Event, Timeline

EVENTS = st.builds(
    lambda name, category, lane, start, length: Event(name, category, lane, start, start + length),
    st.text(max_size=8),
    st.sampled_from(["step", "forward"]),
    st.sampled_from(["rank 0", "link 0-1"]),
    st.integers(0, 10**13),
    st.integers(0, 10**10),
)


@given(st.lists(EVENTS))
def test_chrome_round_trip(events: list[Event]) -> None:
    timeline = Timeline.of(events)
    assert Timeline.from_chrome(timeline.to_chrome()) == timeline


def test_file_round_trip(tmp_path: Path) -> None:
    timeline = Timeline.of([Event("b", "step", "rank 0", 5, 9), Event("a", "step", "rank 0", 1, 4)])
    timeline.save(tmp_path / "t.json")
    assert Timeline.load(tmp_path / "t.json") == timeline
    assert [event.name for event in timeline.events] == ["a", "b"]
