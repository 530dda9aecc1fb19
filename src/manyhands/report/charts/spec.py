"""Spec: what a plot shows, told once, and drawn by Plotly in the page and by matplotlib in a picture."""

from dataclasses import dataclass
from typing import Literal

Look = Literal["line", "dashes", "points", "bars", "spans"]


@dataclass(frozen=True)
class Axis:
    """What is measured along an edge; with `names` it has no scale but the places 0, 1, … from the top down."""

    title: str = ""
    log: bool = False
    from_zero: bool = False
    percent: bool = False  # fractions, shown as such
    names: tuple[str, ...] = ()
    ticks: tuple[float, ...] = ()  # where numbers are written; default: wherever they fit


@dataclass(frozen=True)
class Series:
    """Points in one colour. Bars and spans lie: x is how long they are and y is their place."""

    name: str
    colour: int  # a place in the palette
    look: Look
    x: tuple[float, ...]
    y: tuple[float, ...]
    error: tuple[float, ...] = ()  # the deviation of each value
    start: tuple[float, ...] = ()  # of each span
    words: tuple[str, ...] = ()  # what each point says, when it is pointed at
    written: bool = False  # in a picture, which nobody can point at, some words are written beside their points
    family: str = ""  # series of one family are switched on and off together
    listed: bool = True  # has an entry in the legend
    shown: bool = True  # from the start, or only once the reader picks it in the legend
    faint: bool = False
    symbol: int = 0


@dataclass(frozen=True)
class Chart:
    """One plot; `name` is that of its files."""

    name: str
    title: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]

    @property
    def look(self) -> Look:
        return self.series[0].look if self.series else "line"


@dataclass(frozen=True)
class Panel:
    """Charts that share a place in the page, one of which is seen at a time; a tab a chart."""

    title: str
    charts: dict[str, Chart]  # by the words of their tab
    note: str = ""
