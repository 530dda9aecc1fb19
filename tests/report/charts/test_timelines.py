"""Timelines: measured and predicted on one clock, and never more than can be seen."""

from pathlib import Path
from typing import Any

import pytest

from manyhands.report.charts import timelines
from manyhands.report.charts.spec import Chart
from manyhands.report.data import summary
from manyhands.report.data.group import Group
from manyhands.timeline import Event, Timeline

SECOND, MILLI = 10**9, 10**6


def run_events() -> list[Event]:
    return [
        Event("search", "search", "rank 0", 0, 2 * SECOND),
        Event("steps 1 to 9", "train", "rank 0", 2 * SECOND, 8 * SECOND),
        Event("steps 1 to 9", "train", "rank 1", 2 * SECOND, 8 * SECOND),
        Event("conv1", "forward", timelines.STEP, 0, 20 * MILLI),
        Event("conv1", "backward", timelines.STEP, 20 * MILLI, 60 * MILLI),
    ]


@pytest.fixture
def charts(make_run: Any) -> Any:
    """The charts of a run with these timelines."""

    def draw(measured: list[Event], predicted: list[Event] | None = None) -> dict[str, Chart]:
        run = make_run("run")
        Timeline.of(measured).save(run.folder / "timeline.json")
        if predicted is not None:
            Timeline.of(predicted).save(run.folder / "predicted.json")
        panel, damaged = timelines.panel(summary.rows([Group("serial", (run,))]))
        assert panel is not None
        assert not damaged
        return panel.charts

    return draw


def spans(chart: Chart) -> set[tuple[str, str, float, float]]:
    """Lane, name, start and end of all that is drawn."""
    return {
        (chart.y.names[int(lane)], name, start, start + length)
        for series in chart.series
        for lane, name, start, length in zip(series.y, series.words, series.start, series.x, strict=True)
    }


def test_the_run_and_one_step_have_clocks_of_their_own(charts: Any) -> None:
    drawn = charts(run_events())
    assert [*drawn] == ["the run", "one step"]
    assert drawn["the run"].x.title == "seconds"
    assert spans(drawn["the run"]) == {
        ("rank 0", "search", 0.0, 2.0),
        ("rank 0", "steps 1 to 9", 2.0, 8.0),
        ("rank 1", "steps 1 to 9", 2.0, 8.0),
    }
    assert drawn["one step"].x.title == "milliseconds"
    assert spans(drawn["one step"]) == {
        (timelines.STEP, "conv1", 0.0, 20.0),
        (timelines.STEP, "conv1", 20.0, 60.0),
    }


def test_a_predicted_step_lies_below_the_measured_one(charts: Any) -> None:
    drawn = charts(run_events(), [Event("conv1", "forward", "cpu 0", 0, 25 * MILLI)])
    assert drawn["one step"].y.names == (f"measured: {timelines.STEP}", "predicted: cpu 0")
    assert ("predicted: cpu 0", "conv1", 0.0, 25.0) in spans(drawn["one step"])
    assert drawn["the run"].y.names == ("rank 0", "rank 1")


def test_a_predicted_run_lies_below_the_measured_one(charts: Any) -> None:
    drawn = charts(run_events(), [Event("train", "train", "cpu 0", 0, 9 * SECOND)])
    assert drawn["the run"].y.names == ("measured: rank 0", "measured: rank 1", "predicted: cpu 0")
    assert drawn["one step"].y.names == (timelines.STEP,)


def test_many_events_are_joined_without_losing_time(charts: Any) -> None:
    many = [Event(f"step {at}", "train", "rank 0", at * MILLI, (at + 1) * MILLI) for at in range(9000)]
    many[4000] = Event("test", "eval", "rank 0", 4000 * MILLI, 4001 * MILLI)
    (chart,) = charts(many).values()
    drawn = spans(chart)
    assert len(drawn) <= timelines.MOST_EVENTS
    assert sum(end - start for *_, start, end in drawn) == pytest.approx(9.0)
    assert ("rank 0", "test", 4.0, 4.001) in drawn
    assert any(name.startswith("step 0 … step ") for _, name, _, _ in drawn)


def test_events_that_cannot_be_joined_are_kept_by_their_length(charts: Any) -> None:
    mixed = [
        Event(f"e{at}", "ab"[at % 2], "rank 0", 10 * at * MILLI, (10 * at + 1 + at % 7) * MILLI) for at in range(4000)
    ]
    (chart,) = charts(mixed).values()
    lengths = [end - start for *_, start, end in spans(chart)]
    assert len(lengths) == timelines.MOST_EVENTS
    assert min(lengths) > 0.004


def test_endless_lanes_are_cut(charts: Any) -> None:
    (chart,) = charts([Event("x", "train", f"rank {at:05d}", 0, SECOND) for at in range(5000)]).values()
    assert len(chart.y.names) == timelines.MOST_LANES


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        '{"traceEvents": [{}]}',
        '{"traceEvents": [{"ph": "X", "name": "x", "cat": "y", "tid": 0, "ts": NaN, "dur": 1}]}',
        '{"traceEvents": [{"ph": "M", "tid": 0, "args": {"name": "l"}}, '
        '{"ph": "X", "name": "x", "cat": "y", "tid": 0, "ts": 1e999, "dur": 1}]}',
        "[" * 100_000,
    ],
)
def test_what_is_no_timeline_is_told(make_run: Any, content: str) -> None:
    run = make_run("run")
    (run.folder / "timeline.json").write_text(content)
    panel, damaged = timelines.panel(summary.rows([Group("serial", (run,))]))
    assert panel is None
    ((folder, reason),) = damaged
    assert folder == run.folder
    assert "its timeline cannot be read" in reason


def test_a_tab_a_case(make_run: Any) -> None:
    groups = [Group(f"case {number}", (make_run(f"{number}"),)) for number in range(9)]
    for each in groups[1:]:
        Timeline.of([Event("x", "train", "rank 0", 0, SECOND)]).save(Path(each.runs[0].folder) / "timeline.json")
    panel, _ = timelines.panel(summary.rows(groups))
    assert panel is not None
    assert [*panel.charts] == [f"case {number}: the run" for number in range(1, 1 + timelines.MOST_RUNS)]
    assert panel.note == "The first 6 of 8 cases."
