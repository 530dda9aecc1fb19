"""Plots: figures of runs as SVG or PNG, each plan in one colour throughout."""

import io
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FormatStrFormatter, LogLocator, NullLocator

from manyhands.report.curve import Curve, curve_of
from manyhands.report.summary import Row, costly, ratio, times, total

# Okabe and Ito's colours, which colour-blind people can tell apart; yellow is too pale on white. The first row is
# what the others are measured by, and grey.
REFERENCE = "#8A8A8A"
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
FORWARD, BACKWARD = "#56B4E9", "#D55E00"
INK, FAINT = "#24292F", "#D0D7DE"
MOST_LAYERS = 14
MOST_MARKS = 4  # accuracies written on a curve

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
    "svg.fonttype": "path",  # the page looks the same whatever fonts its reader has
    "text.color": INK,
    "text.parse_math": False,  # a dollar in a name is a dollar
    "xtick.color": INK,
    "ytick.color": INK,
}


def colours(table: Sequence[Row]) -> list[str]:
    """A colour a row: grey for the first when there are others to measure by it."""
    bright = [PALETTE[number % len(PALETTE)] for number in range(len(table))]
    return [REFERENCE, *bright[:-1]] if len(table) > 1 else bright


def speed_svg(table: Sequence[Row]) -> bytes:
    """Samples a second by plan."""
    with _figure(6.0, max(3.8, 1.0 + 0.5 * len(table))) as figure:
        _draw_speed(figure.add_subplot(), table)
        return _svg(figure, "speed")


def curves_svg(table: Sequence[Row]) -> bytes:
    """Training loss against seconds, with the validation accuracy after each epoch."""
    with _figure(6.0, 3.8) as figure:
        _draw_curves(figure.add_subplot(), table)
        return _svg(figure, "curves")


def layers_svg(layers: Sequence[dict[str, Any]]) -> bytes:
    """Forward and backward time of each layer."""
    shown = costly(layers, MOST_LAYERS)
    with _figure(6.0, 1.5 + 0.36 * len(shown)) as figure:
        _draw_layers(figure.add_subplot(), shown)
        return _svg(figure, "layers")


def picture_png(table: Sequence[Row], finding: str) -> bytes:
    """One wide picture, 1200 by 450 at the double resolution of sharp screens: the bars, and the curves beside them."""
    with _figure(12.0, 4.5) as figure:
        figure.suptitle(textwrap.fill(finding, 95), x=0.01, ha="left", fontsize=15, fontweight="bold")
        bars, curves = figure.subplots(1, 2, width_ratios=(5, 6))
        _draw_speed(bars, table)
        _draw_curves(curves, table)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=200, metadata={"Software": None})
        return buffer.getvalue()


@contextmanager
def _figure(width: float, height: float) -> Iterator[Figure]:
    """A figure that no global state knows of, in the house's style."""
    with rc_context(STYLE), warnings.catch_warnings():
        # A name in a script that the font has not shows as boxes; that is no reason to speak in between.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield Figure(figsize=(width, height), layout="constrained")


def _svg(figure: Figure, name: str) -> bytes:
    """The figure as SVG, the same bytes for the same runs."""
    buffer = io.BytesIO()
    with rc_context({"svg.hashsalt": name}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return buffer.getvalue()


def _draw_speed(axes: Axes, table: Sequence[Row]) -> None:
    axes.set_title("Samples a second, steady state")
    tops = [row.speed.mean + row.speed.std for row in table if row.speed]
    most = max(tops, default=1.0)
    for at, (row, colour) in enumerate(zip(table, colours(table), strict=True)):
        if row.speed is None:
            axes.text(0.01 * most, at, "failed" if row.errors else "not measured", va="center", color=REFERENCE)
            continue
        deviation = row.speed.std if row.speed.n > 1 else None
        axes.barh(at, row.speed.mean, 0.62, color=colour, xerr=deviation, error_kw={"ecolor": INK, "capsize": 4})
        words = f"{row.speed.mean:,.0f}"
        if row.speedup is not None and len(table) > 1:
            words += f"  ({times(row.speedup)})" if at else "  (1x)"
        end = row.speed.mean + (deviation or 0.0)
        axes.text(end + 0.02 * most, at, words, va="center", fontweight="bold")
    axes.set_xlim(0, 1.35 * most)
    axes.set_ylim(len(table) - 0.5, -0.5)  # the first on top
    axes.set_yticks(range(len(table)), [_short(row.label) for row in table])
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_visible(False)
    axes.spines["bottom"].set_visible(False)


def _draw_curves(axes: Axes, table: Sequence[Row]) -> None:
    axes.set_title("Training loss, and validation accuracy by epoch")
    drawn = [
        (row, colour, number, curve)
        for row, colour in zip(table, colours(table), strict=True)
        for number, curve in enumerate(map(curve_of, row.runs))
        if curve.seconds
    ]
    for row, colour, number, curve in drawn:
        label = _short(row.label) if number == 0 else None
        axes.plot(
            curve.seconds, curve.loss, color=colour, linewidth=2.2, alpha=1.0 if number == 0 else 0.4, label=label
        )
        dots = ([mark.seconds for mark in curve.marks], [mark.loss for mark in curve.marks])
        axes.scatter(*dots, s=44, color=colour, edgecolors="white", linewidths=1.2, zorder=3)
        if number == 0:
            _write_marks(axes, curve, colour, above=row is table[0])
    if not drawn:
        axes.text(0.5, 0.5, "no metrics", ha="center", va="center", color=REFERENCE, transform=axes.transAxes)
        axes.set_axis_off()
        return
    axes.set_xlim(0, 1.12 * max(curve.seconds[-1] for *_, curve in drawn))
    axes.set_xlabel("seconds of training")
    axes.set_ylabel("loss")
    axes.grid(axis="y", color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.legend(loc="upper right")
    if all(loss > 0 for *_, curve in drawn for loss in curve.loss):
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(FormatStrFormatter("%g"))
        axes.yaxis.set_minor_locator(NullLocator())
    axes.margins(y=0.12)


def _write_marks(axes: Axes, curve: Curve, colour: str, above: bool) -> None:
    """The accuracies of the last epoch and of some before it, evenly spread."""
    every = -(-len(curve.marks) // MOST_MARKS)
    for mark in curve.marks[::-1][:: every or 1]:
        axes.annotate(
            f"{100 * mark.accuracy:.1f} %",
            (mark.seconds, mark.loss),
            xytext=(4, 5) if above else (-4, -5),
            textcoords="offset points",
            ha="left" if above else "right",
            va="bottom" if above else "top",
            color=INK if colour == REFERENCE else colour,
            fontsize=10,
            fontweight="bold",
        )


def _draw_layers(axes: Axes, layers: Sequence[dict[str, Any]]) -> None:
    axes.set_title(f"Backward takes {times(ratio(total(layers, 'all')))} as long as forward")
    for offset, key, colour, label in (
        (-0.2, "forward_ms", FORWARD, "forward"),
        (0.2, "backward_ms", BACKWARD, "backward"),
    ):
        places = [at + offset for at in range(len(layers))]
        axes.barh(places, [each[key] for each in layers], 0.38, color=colour, label=label)
    axes.set_yticks(range(len(layers)), [_short(str(each["name"])) for each in layers])
    axes.set_ylim(len(layers) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("milliseconds a step")
    axes.grid(axis="x", color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.legend(loc="best")


def _short(label: str) -> str:
    """A long name must not push the figure aside."""
    return label if len(label) <= 28 else f"{label[:27]}…"
