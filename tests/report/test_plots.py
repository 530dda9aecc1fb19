"""Figures: whole files, one colour a plan, whatever the runs are like."""

import io
import struct
from typing import Any
from xml.etree import ElementTree

import pytest
from PIL import Image

from manyhands.report import plots, summary
from manyhands.report.summary import Group, Row


@pytest.fixture
def table(make_run: Any) -> list[Row]:
    groups = [
        Group("plain", (make_run("a0", 1000.0), make_run("a1", 1100.0))),
        Group("serial", (make_run("b0", 3000.0), make_run("b1", 3100.0))),
    ]
    return summary.rows(groups)


def colours_in(svg: bytes) -> str:
    ElementTree.fromstring(svg)  # it is XML
    assert b"nan" not in svg.lower()
    return svg.decode().lower()


def test_each_plan_keeps_its_colour(table: list[Row]) -> None:
    plain, serial = (colour.lower() for colour in plots.colours(table))
    assert plain != serial
    for figure in (plots.speed_svg(table), plots.curves_svg(table)):
        assert plain in colours_in(figure)
        assert serial in colours_in(figure)


def test_the_same_runs_give_the_same_bytes(table: list[Row]) -> None:
    assert plots.speed_svg(table) == plots.speed_svg(table)
    assert plots.curves_svg(table) == plots.curves_svg(table)


def test_colours_differ_for_as_many_plans_as_the_palette_has(table: list[Row]) -> None:
    assert len(set(plots.colours(table * 4))) == 8
    assert plots.colours(table[:1]) == [plots.PALETTE[0]]


def test_the_picture_is_wide(table: list[Row]) -> None:
    png = plots.picture_png(table, summary.finding(table))
    width, height = struct.unpack(">II", png[16:24])
    assert (width, height) == (2400, 900)
    shown = Image.open(io.BytesIO(png)).convert("RGB")
    assert len(shown.getcolors(maxcolors=2**24) or []) > 10, "it is not an empty canvas"


def test_the_layers_figure_shows_forward_and_backward(table: list[Row]) -> None:
    shown = colours_in(plots.layers_svg(table[0].runs[0].record["layers"]))
    assert plots.FORWARD.lower() in shown
    assert plots.BACKWARD.lower() in shown


def test_many_layers_make_no_endless_figure(make_run: Any) -> None:
    layer = {"name": "x", "kind": "Linear", "parameters": 1, "forward_ms": 1.0, "backward_ms": 2.0}
    few, many = (ElementTree.fromstring(plots.layers_svg([layer] * count)) for count in (plots.MOST_LAYERS, 300))
    assert few.get("height") == many.get("height")


@pytest.mark.parametrize("label", ["<script>&", "$\\frac$ $x", "_hidden", "名前 🙂", "a" * 300, ""])
def test_any_label_can_be_drawn(make_run: Any, label: str) -> None:
    table = summary.rows([Group("plain", (make_run("a"),)), Group(label, (make_run("b"),))])
    colours_in(plots.speed_svg(table))
    colours_in(plots.curves_svg(table))


def test_runs_that_failed_are_drawn_as_such(make_run: Any) -> None:
    table = summary.rows([Group("plain", (make_run("a", None),)), Group("serial", (make_run("b", None),))])
    colours_in(plots.speed_svg(table))
    colours_in(plots.curves_svg(table))
    assert plots.picture_png(table, summary.finding(table)).startswith(b"\x89PNG")


def test_layers_that_took_no_time(make_run: Any) -> None:
    layer = {"name": "x", "kind": "Identity", "parameters": 0, "forward_ms": 0.0, "backward_ms": 0.0}
    colours_in(plots.layers_svg([layer]))
