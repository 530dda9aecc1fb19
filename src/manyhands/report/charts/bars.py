"""Bars: a value a case, with its deviation and what it comes to in words."""

from collections.abc import Sequence
from dataclasses import dataclass

from manyhands.report.charts.spec import Axis, Chart, Series
from manyhands.stats import Mean


@dataclass(frozen=True)
class Bar:
    """One case; without a value the words stand alone."""

    label: str
    value: Mean | None
    words: str
    colour: int


def bars(name: str, title: str, unit: str, every: Sequence[Bar], share: bool = False) -> Chart:
    """A chart with the first on top. Shares are points instead: as bars that begin at 0 they all look the same."""
    known = [bar for bar in every if bar.value or not share]
    series = (
        Series(
            bar.label,
            bar.colour,
            "points" if share else "bars",
            x=(bar.value.mean if bar.value else 0.0,),
            y=(float(place),),
            error=(bar.value.std,) if bar.value and bar.value.n > 1 else (),
            words=(bar.words,),
            listed=False,
        )
        for place, bar in enumerate(known)
    )
    names = tuple(bar.label for bar in known)
    return Chart(name, title, Axis(unit, percent=share), Axis(names=names), tuple(series))
