"""Pictures: whole files, one colour a case, whatever the runs are like."""

import io
import struct
from typing import Any
from xml.etree import ElementTree

import pytest
from PIL import Image

from manyhands.report import matplotlib_backend
from manyhands.report.charts import runs
from manyhands.report.charts.palette import BRIGHT, DARK, LIGHT, places
from manyhands.report.charts.spec import Chart
from manyhands.report.data.group import Group
from manyhands.report.gather import Report, of_groups
from manyhands.timeline import Event, Timeline


@pytest.fixture
def report(make_run: Any) -> Report:
    groups = [
        Group("plain", (make_run("a0", 1000.0), make_run("a1", 1100.0))),
        Group("serial", (make_run("b0", 3000.0), make_run("b1", 3100.0))),
    ]
    events = [Event("epoch", "train", "rank 0", 0, 5_000_000), Event("test", "eval", "rank 0", 5_000_000, 9_000_000)]
    Timeline.of(events).save(groups[0].runs[0].folder / "timeline.json")
    return of_groups(groups, "")


def drawn(chart: Chart) -> str:
    picture = matplotlib_backend.svg(chart)
    ElementTree.fromstring(picture)  # it is XML
    assert b"nan" not in picture.lower()
    assert matplotlib_backend.png(chart).startswith(b"\x89PNG")
    return picture.decode().lower()


def chart_of(report: Report, name: str) -> Chart:
    return next(chart for chart in report.drawn if chart.name == name)


def test_every_chart_can_be_drawn(report: Report) -> None:
    names = [chart.name for chart in report.drawn]
    assert names == [
        *("speed", "loss-by-second", "loss-by-epoch", "accuracy-by-second", "accuracy-by-epoch"),
        *("time-and-accuracy", "timeline-0-the-run", "layers"),
    ]
    for chart in report.drawn:
        assert len(drawn(chart)) > 2000


def test_each_case_keeps_its_colour(report: Report) -> None:
    plain, serial = (LIGHT[place].lower() for place in places(2))
    assert plain != serial
    for name in ("speed", "loss-by-second", "accuracy-by-epoch", "time-and-accuracy"):
        picture = drawn(chart_of(report, name))
        assert plain in picture
        assert serial in picture


def test_the_same_runs_give_the_same_bytes(report: Report) -> None:
    for name in ("speed", "loss-by-second"):
        assert matplotlib_backend.svg(chart_of(report, name)) == matplotlib_backend.svg(chart_of(report, name))


def test_colours_differ_for_as_many_cases_as_the_palette_has() -> None:
    assert len(set(places(BRIGHT + 1))) == BRIGHT + 1
    assert max(places(100)) == BRIGHT
    assert places(1) == [1]
    assert len(set(LIGHT)) == len(set(DARK)) == len(LIGHT) == len(DARK)


def test_the_picture_is_wide(report: Report) -> None:
    png = matplotlib_backend.picture([*report.drawn][:2], report.finding)
    width, height = struct.unpack(">II", png[16:24])
    assert (width, height) == (2400, 900)
    shown = Image.open(io.BytesIO(png)).convert("RGB")
    assert len(shown.getcolors(maxcolors=2**24) or []) > 10, "it is not an empty canvas"


def test_the_layers_figure_shows_forward_and_backward(report: Report) -> None:
    picture = drawn(chart_of(report, "layers"))
    assert LIGHT[runs.FORWARD].lower() in picture
    assert LIGHT[runs.BACKWARD].lower() in picture


def test_many_layers_make_no_endless_figure() -> None:
    layer = {"name": "x", "kind": "Linear", "parameters": 1, "forward_ms": 1.0, "backward_ms": 2.0}
    few, many = (runs.layers([layer] * count).charts[""] for count in (runs.MOST_LAYERS, 300))
    assert len(few.y.names) == len(many.y.names) == runs.MOST_LAYERS


@pytest.mark.parametrize("label", ["<script>&", "$\\frac$ $x", "_hidden", "名前 🙂", "a" * 300, "", "half \udcff"])
def test_any_label_can_be_drawn(make_run: Any, label: str) -> None:
    report = of_groups([Group("plain", (make_run("a"),)), Group(label, (make_run("b"),))], "")
    for name in ("speed", "loss-by-second"):
        drawn(chart_of(report, name))


def test_runs_that_failed_are_drawn_as_such(make_run: Any) -> None:
    report = of_groups([Group("plain", (make_run("a", None),)), Group("serial", (make_run("b", None),))], "")
    assert [chart.name for chart in report.drawn] == ["speed"]
    drawn(chart_of(report, "speed"))
    assert matplotlib_backend.picture([*report.drawn][:2], report.finding).startswith(b"\x89PNG")


def test_layers_that_took_no_time() -> None:
    layer = {"name": "x", "kind": "Identity", "parameters": 0, "forward_ms": 0.0, "backward_ms": 0.0}
    drawn(runs.layers([layer]).charts[""])


def test_of_many_cases_the_first_and_the_fastest_have_bars(make_run: Any) -> None:
    report = of_groups([Group(f"case {number}", (make_run(str(number), 100.0 + number),)) for number in range(30)], "")
    names = chart_of(report, "speed").y.names
    assert names == ("case 0", *(f"case {number}" for number in range(11, 30)))
