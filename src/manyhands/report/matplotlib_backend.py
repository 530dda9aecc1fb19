"""Matplotlib backend: charts as pictures, SVG or PNG, by matplotlib."""

import io
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FormatStrFormatter, LogLocator, NullLocator, PercentFormatter

from manyhands.report.charts.palette import LIGHT, REFERENCE
from manyhands.report.charts.spec import Axis, Chart, Series

INK, FAINT = "#24292F", "#D0D7DE"
GREY = LIGHT[REFERENCE]
SYMBOLS = "oDsP^X*p"
DASHES = ("solid", "dotted", "dashdot")
MOST_LETTERS = 28  # of a name
MOST_WORDS = 4  # written at the points of a series
MOST_LISTED = 14  # entries of a legend
POINT = 44  # square points
ERRORS: dict[str, Any] = {"ecolor": INK, "capsize": 4, "elinewidth": 1.2}

STYLE: dict[Any, Any] = {  # matplotlib types the keys as a list of literals
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlepad": 12,
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "figure.constrained_layout.h_pad": 0.12,
    "figure.constrained_layout.w_pad": 0.12,
    "figure.facecolor": "white",
    "font.size": 11,
    "legend.edgecolor": "none",
    "legend.framealpha": 1.0,
    "svg.fonttype": "path",  # the picture looks the same whatever fonts its reader has
    "text.color": INK,
    "text.parse_math": False,  # a dollar in a name is a dollar
    "xtick.color": INK,
    "ytick.color": INK,
}


def svg(chart: Chart) -> bytes:
    """A chart as SVG, the same bytes for the same runs."""
    with _figure(*_size(chart)) as figure, rc_context({"svg.hashsalt": chart.name}):
        _draw(figure.add_subplot(), chart)
        return _saved(figure, format="svg", metadata={"Date": None, "Creator": None})


def png(chart: Chart) -> bytes:
    """A chart as PNG, sharp enough for print."""
    with _figure(*_size(chart)) as figure:
        _draw(figure.add_subplot(), chart)
        return _saved(figure, format="png", dpi=200, metadata={"Software": None})


def picture(charts: Sequence[Chart], finding: str) -> bytes:
    """One wide PNG, 1200 by 450 at the double resolution of sharp screens: charts beside each other."""
    with _figure(12.0, 4.5) as figure:
        figure.suptitle(textwrap.fill(finding, 95), x=0.01, ha="left", fontsize=15, fontweight="bold")
        for axes, chart in zip(figure.subplots(1, len(charts), squeeze=False)[0], charts, strict=True):
            _draw(axes, chart)
        return _saved(figure, format="png", dpi=200, metadata={"Software": None})


@contextmanager
def _figure(width: float, height: float) -> Iterator[Figure]:
    """A figure that no global state knows of, in the house's style."""
    with rc_context(STYLE), warnings.catch_warnings():
        # A name in a script that the font has not shows as boxes; that is no reason to speak in between.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield Figure(figsize=(width, height), layout="constrained")


def _size(chart: Chart) -> tuple[float, float]:
    """Inches: higher with more places, wider for a timeline."""
    if chart.look == "spans":
        return 11.0, 1.6 + 0.4 * len(chart.y.names)
    return 7.0, max(3.8, 1.5 + 0.36 * len(chart.y.names))


def _saved(figure: Figure, **options: Any) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, **options)
    return buffer.getvalue()


def _draw(axes: Axes, chart: Chart) -> None:
    axes.set_title(_short(chart.title, 60))
    if not chart.series:
        axes.text(0.5, 0.5, "nothing was measured", ha="center", va="center", color=GREY, transform=axes.transAxes)
        axes.set_axis_off()
        return
    axes.set_axisbelow(True)
    _settle(axes.xaxis, chart.x, axes.set_xlabel, axes.set_xscale)
    _settle(axes.yaxis, chart.y, axes.set_ylabel, axes.set_yscale)
    if chart.look == "bars":
        _draw_bars(axes, chart)
    elif chart.look == "spans":
        _draw_spans(axes, chart)
    else:
        _draw_lines(axes, chart)
    _legend(axes, chart)


def _settle(axis: Any, told: Axis, label: Any, scale: Any) -> None:
    """Title, scale and ticks of an axis."""
    label(told.title)
    if told.log:
        scale("log")
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(FormatStrFormatter("%g"))
        axis.set_minor_locator(NullLocator())
    if told.percent:
        axis.set_major_formatter(PercentFormatter(1.0, decimals=1))
    if told.ticks:
        axis.set_major_locator(FixedLocator(told.ticks))


def _named(axes: Axes, chart: Chart) -> None:
    """The names of the places, the first on top."""
    names = chart.y.names
    axes.set_yticks(range(len(names)), [_short(name) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)


def _draw_bars(axes: Axes, chart: Chart) -> None:
    """Single bars with their words after them, or several at each place over a scale."""
    several = sum(series.listed for series in chart.series)
    height = 0.76 / several if several else 0.62
    for number, series in enumerate(chart.series):
        offset = (number - (several - 1) / 2) * height if several else 0.0
        places = [place + offset for place in series.y]
        bars = axes.barh(places, series.x, height, xerr=series.error or None, error_kw=ERRORS)
        bars.set_label(_short(series.name))
        for bar in bars:
            bar.set_color(LIGHT[series.colour])
    if several:
        axes.grid(axis="x", color=FAINT, linewidth=0.6)
    else:
        _write_values(axes, chart)
    _named(axes, chart)


def _write_values(axes: Axes, chart: Chart) -> None:
    ends = [series.x[0] + (series.error[0] if series.error else 0.0) for series in chart.series]
    longest = max(ends) or 1.0
    for end, series in zip(ends, chart.series, strict=True):
        words = axes.text(end + 0.02 * longest, series.y[0], series.words[0], va="center", color=INK if end else GREY)
        words.set_fontweight("bold" if end else "normal")
    axes.set_xlim(0, 1.5 * longest)
    axes.xaxis.set_visible(False)
    axes.spines["bottom"].set_visible(False)


def _draw_spans(axes: Axes, chart: Chart) -> None:
    for series in chart.series:
        axes.barh(series.y, series.x, 0.7, left=series.start, color=LIGHT[series.colour], label=_short(series.name))
    _named(axes, chart)


def _draw_lines(axes: Axes, chart: Chart) -> None:
    axes.grid(axis="y", color=FAINT, linewidth=0.6)
    for series in (each for each in chart.series if each.shown):
        colour, alpha = LIGHT[series.colour], 0.4 if series.faint else 1.0
        label = _short(series.name) if series.listed else None
        if series.look == "points":
            marker = SYMBOLS[series.symbol % len(SYMBOLS)]
            dots = axes.scatter(series.x, series.y, s=POINT, marker=marker, color=colour, alpha=alpha, label=label)
            dots.set(edgecolors="white", linewidths=1.2, zorder=3)
        else:
            dash = "dashed" if series.look == "dashes" else DASHES[series.symbol % len(DASHES)]
            axes.plot(series.x, series.y, color=colour, linewidth=2.2, linestyle=dash, alpha=alpha, label=label)
        if series.error:
            lying = bool(chart.y.names)
            both: dict[str, Any] = {"xerr": series.error if lying else None, "yerr": None if lying else series.error}
            axes.errorbar(series.x, series.y, fmt="none", **both, **ERRORS)
        if series.written:
            _write(axes, series, above=series.colour == REFERENCE)
    axes.margins(x=0.08, y=0.12)
    if chart.x.from_zero:
        axes.set_xlim(left=0)
    if chart.y.names:
        _named(axes, chart)


def _write(axes: Axes, series: Series, above: bool) -> None:
    """The words of the last point and of some before it, evenly spread."""
    points = list(zip(series.x, series.y, series.words, strict=False))[::-1]
    for x, y, words in points[:: -(-len(points) // MOST_WORDS) or 1]:
        axes.annotate(
            words,
            (x, y),
            xytext=(4, 5) if above else (-4, -5),
            textcoords="offset points",
            ha="left" if above else "right",
            va="bottom" if above else "top",
            color=INK if series.colour == REFERENCE else LIGHT[series.colour],
            fontsize=10,
            fontweight="bold",
        )


def _legend(axes: Axes, chart: Chart) -> None:
    """What each colour is, as far as there is room."""
    handles, labels = axes.get_legend_handles_labels()
    if any(series.listed for series in chart.series) and handles:
        shown = handles[:MOST_LISTED], labels[:MOST_LISTED]
        if chart.look == "spans":  # bars are everywhere
            axes.legend(*shown, loc="upper left", bbox_to_anchor=(1.0, 1.0))
        else:
            axes.legend(*shown, loc="best")


def _short(name: str, most: int = MOST_LETTERS) -> str:
    """A name that does not push the figure aside; the name of a folder may hold what is no text."""
    name = name.encode(errors="replace").decode()
    return name if len(name) <= most else f"{name[: most - 1]}…"
