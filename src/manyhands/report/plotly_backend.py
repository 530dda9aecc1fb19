"""Plotly backend: charts as Plotly draws them; the page puts in the colours of its light or dark ground."""

import math
from collections.abc import Iterable
from typing import Any

from manyhands.report.charts.spec import Axis, Chart, Series

Figure = dict[str, Any]

DIGITS = 5  # of a number in a plot
MOST_LETTERS = 32  # of a name in a plot, so that it fits on a phone
SYMBOLS = ("circle", "diamond", "square", "cross", "triangle-up", "x", "star", "pentagon")
DASHES = ("solid", "dot", "dashdot")
NAMED = "<extra>%{fullData.name}</extra>"
FEW_SPANS = 120
LEGEND = 96  # pixels at most: a longer legend scrolls


def figure(chart: Chart) -> Figure:
    """The data and the layout of a chart, and the name of its picture; `zoom`: one is expected to look closer."""
    draw = {"bars": _bar, "spans": _spans}.get(chart.look, _line)
    return {
        "data": [draw(chart, series) for series in chart.series],
        "layout": _layout(chart),
        "name": chart.name,
        "zoom": chart.look == "spans",
    }


def plain(words: object) -> str:
    """Text in which Plotly finds no markup and no template: to it <b>, <a href> and %{x} are more than letters."""
    escaped = str(words).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return escaped.replace("%{", "%&#123;")


def short(name: str) -> str:
    return name if len(name) <= MOST_LETTERS else f"{name[: MOST_LETTERS - 1]}…"


def numbers(values: Iterable[float]) -> list[float | None]:
    """As many digits as can be seen; what is no number is a gap."""
    return [rounded if math.isfinite(rounded := float(f"{value:.{DIGITS}g}")) else None for value in values]


def _common(series: Series) -> Figure:
    return {
        "name": plain(short(series.name)),
        "legendgroup": plain(series.family or series.name),
        "showlegend": series.listed,
        "visible": True if series.shown else "legendonly",
        "opacity": 0.45 if series.faint else 1,
        "x": numbers(series.x),
        "y": numbers(series.y),
    }


def _line(chart: Chart, series: Series) -> Figure:
    colour = f"@c{series.colour}"
    x, y = (f"{plain(axis.title)}: %{{{name}:{_format(axis)}}}" for axis, name in ((chart.x, "x"), (chart.y, "y")))
    trace = {**_common(series), "type": "scatter", "hovertemplate": f"{y}<br>{x}{NAMED}"}
    if series.words:
        trace["text"] = [plain(each) for each in series.words]
        trace["hovertemplate"] = f"<b>%{{text}}</b><br>{x}{NAMED}"
    if series.error:
        along = "error_x" if chart.y.names else "error_y"
        trace[along] = {"array": numbers(series.error), "color": colour, "thickness": 1.5, "width": 4}
    if series.look == "points":
        symbol, size = SYMBOLS[series.symbol % len(SYMBOLS)], 13 if chart.y.names else 9
        edge = {"color": "@card", "width": 1.5}
        return trace | {"mode": "markers", "marker": {"color": colour, "size": size, "symbol": symbol, "line": edge}}
    dash = "dash" if series.look == "dashes" else DASHES[series.symbol % len(DASHES)]
    return trace | {"mode": "lines", "line": {"color": colour, "width": 2.5, "dash": dash}}


def _bar(chart: Chart, series: Series) -> Figure:
    labels = (plain(chart.y.names[int(place)]) for place in series.y)
    trace = {
        **_common(series),
        "type": "bar",
        "orientation": "h",
        "text": [f"{label}<br><b>{plain(each)}</b>" for label, each in zip(labels, series.words, strict=True)],
        "textposition": "none",
        "hovertemplate": f"%{{text}}{NAMED if series.listed else '<extra></extra>'}",
        "marker": {"color": f"@c{series.colour}", "cornerradius": 4},
    }
    if not series.listed:
        trace["width"] = 0.42
    if series.error:
        trace["error_x"] = {"array": numbers(series.error), "color": "@ink", "thickness": 1.5, "width": 4}
    return trace


def _spans(chart: Chart, series: Series) -> Figure:
    unit = plain(chart.x.title)
    return {
        **_common(series),
        "type": "bar",
        "orientation": "h",
        "base": numbers(series.start),
        "text": [plain(short(each)) for each in series.words],
        "textposition": "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
        "hovertemplate": f"<b>%{{text}}</b><br>%{{value:,.4~r}} {unit} from %{{base:,.4~r}}{NAMED}",
        "marker": {"color": f"@c{series.colour}", "line": {"color": "@card", "width": _edge(chart)}},
        "width": 0.7,
    }


def _edge(chart: Chart) -> float:
    """Lines tell neighbours apart, but where there are many they would be all that is seen."""
    return 0.5 if sum(len(series.x) for series in chart.series) <= FEW_SPANS else 0


def _layout(chart: Chart) -> Figure:
    listed = any(series.listed for series in chart.series)
    layout: Figure = {
        "height": _height(chart) + (LEGEND // 3 if listed else 0),
        "margin": {"l": 8, "r": 40 if chart.look == "spans" else 16, "t": 10, "b": 8},
        "xaxis": _axis(chart.x, [value for series in chart.series for value in series.x]),
        "yaxis": _axis(chart.y, [value for series in chart.series for value in series.y]),
        "hovermode": "closest",
        "showlegend": listed,
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "maxheight": LEGEND},
        "bargap": 0.3,
        "uniformtext": {
            "mode": "hide",
            "minsize": 10,
        },  # what does not fit into a bar shows when it is looked at closer
        "barmode": "group" if chart.look == "bars" and listed else "overlay",
    }
    if chart.y.names and not listed:
        layout["annotations"] = [*_written(chart)]
        layout["yaxis"] |= {"showticklabels": False, "showgrid": chart.look == "points", "showline": False}
        layout["yaxis"].pop("title")
    if chart.look == "bars" and not listed:
        layout["xaxis"] |= {"visible": False, "range": [0, 1.03 * _longest(chart)], "fixedrange": True}
    if chart.y.names:
        layout["yaxis"] |= {"range": [len(chart.y.names) - 0.5, -0.5], "fixedrange": True}
    return layout


def _height(chart: Chart) -> int:
    places = len(chart.y.names)
    if chart.look == "spans":
        return max(190, 110 + 40 * places)
    if chart.look == "bars" and any(series.listed for series in chart.series):
        return 90 + 34 * places
    axis = 24 if chart.look == "bars" else 76
    return axis + places * min(90, max(54, 300 // places)) if places else 360


def _longest(chart: Chart) -> float:
    """Where the longest bar ends, its deviation included."""
    ends = (sum(part) for series in chart.series for part in zip(series.x, series.error or (0.0,), strict=False))
    return max((end for end in ends if math.isfinite(end)), default=0.0) or 1.0


def _written(chart: Chart) -> Iterable[Figure]:
    """Above each bar its label, and at the other end of that line its value: so long words need no room at its side."""
    for series in chart.series:
        at = {"y": series.y[0] - 0.23, "yref": "y", "yanchor": "bottom", "xref": "paper", "showarrow": False}
        yield at | {"x": 0, "xanchor": "left", "text": plain(short(series.name))}
        yield at | {"x": 1, "xanchor": "right", "text": f"<b>{plain(series.words[0])}</b>"}


def _axis(axis: Axis, values: Iterable[float]) -> Figure:
    drawn: Figure = {
        "title": {"text": plain(axis.title), "standoff": 12, "font": {"size": 13}},
        "type": "log" if axis.log else "linear",
        "rangemode": "tozero" if axis.from_zero else "normal",
        "automargin": True,
        "zeroline": False,
        "tickformat": _format(axis),
        "gridcolor": "@line",
        "linecolor": "@line",
    }
    if axis.names:
        names = [plain(short(name)) for name in axis.names]
        return drawn | {"tickvals": [*range(len(names))], "ticktext": names, "showgrid": False}
    if axis.log:
        drawn["dtick"] = _dtick(values)
    if axis.ticks:
        drawn |= {"tickvals": numbers(axis.ticks), "ticktext": [f"{tick:g}" for tick in axis.ticks]}
    return drawn


def _dtick(values: Iterable[float]) -> str | int:
    """On a logarithmic axis numbers stand at 1, 2 and 5 of each power of ten, over many powers at 1 alone."""
    known = [value for value in values if 0 < value < math.inf]
    return "D2" if known and max(known) < 1000 * min(known) else 1


def _format(axis: Axis) -> str:
    return ".2~%" if axis.percent else ",.4~r"
