"""Training curves: the charts of loss and validation accuracy, by the seconds and by the epochs of training."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from manyhands.report.charts.palette import BRIGHT, places
from manyhands.report.charts.spec import Axis, Chart, Look, Panel, Series
from manyhands.report.data.curve import MOST_POINTS, Curve, curve_of
from manyhands.report.data.summary import Row

MOST_DRAWN = 12  # cases that are seen from the start; the others wait in the legend
MOST_POINTS_IN_ALL = 24_000  # of the curves in a chart: many runs make no heavy page
FEWEST_POINTS = 40
MOST_WRITTEN = 3  # cases whose accuracies find room in a picture


@dataclass(frozen=True)
class Learner:
    """A run among those of a chart: the number of its case, of the repeat, and its curve."""

    label: str
    case: int
    repeat: int
    colour: int
    written: bool  # whether a picture says its accuracies
    curve: Curve

    def series(self, look: Look, unit: str, x: Sequence[tuple[float, float]], y: Sequence[float]) -> Series:
        """A line or points against seconds, steps or epochs; x has seconds and steps. Points are the ends of epochs."""
        length = (self.curve.epoch or 1.0) if unit == "epoch" else 1.0
        return Series(
            name=self.label,
            colour=self.colour,
            look=look,
            x=tuple(seconds if unit == "second" else step / length for seconds, step in x),
            y=tuple(y),
            words=tuple(f"{100 * mark.accuracy:.1f} %" for mark in self.curve.marks) if look == "points" else (),
            written=self.written,
            family=str(self.case),
            listed=self.repeat == 0 and look == "line",
            shown=self.case < MOST_DRAWN,
            faint=self.repeat > 0,
            symbol=self.case // BRIGHT,
        )


def learners(table: Sequence[Row]) -> list[Learner]:
    """Every run that left metrics, its curve thinned so that all together stay light."""
    most = min(MOST_POINTS, max(FEWEST_POINTS, MOST_POINTS_IN_ALL // max(1, sum(len(row.runs) for row in table))))
    return list(_with_curves(table, most))


def _with_curves(table: Sequence[Row], most: int) -> Iterator[Learner]:
    for case, (row, colour) in enumerate(zip(table, places(len(table)), strict=True)):
        curves = [curve for curve in (curve_of(run, most) for run in row.runs) if curve.seconds]
        few = len(table) <= MOST_WRITTEN
        for repeat, curve in enumerate(curves):
            yield Learner(row.label, case, repeat, colour, few and repeat == 0, curve)


def panels(table: Sequence[Row]) -> list[Panel]:
    """Loss and accuracy, each by seconds and by epochs; what nobody measured is left out."""
    every = learners(table)
    unit = "epoch" if all(each.curve.epoch for each in every) else "step"
    note = f"{MOST_DRAWN} of {len(table)} are drawn; pick others in the legend." if len(table) > MOST_DRAWN else ""

    def panel(title: str, draw: Callable[[Sequence[Learner], str], Chart], some: Sequence[Learner]) -> list[Panel]:
        return [Panel(title, {f"by {each}": draw(some, each) for each in ("second", unit)}, note)] if some else []

    return [
        *panel("Training loss", loss, every),
        *panel("Validation accuracy", accuracy, [each for each in every if each.curve.marks]),
    ]


def loss(every: Sequence[Learner], unit: str) -> Chart:
    """Smoothed training loss, with a mark at the end of each epoch that says its accuracy."""
    series = []
    for each in every:
        along = list(zip(each.curve.seconds, each.curve.steps, strict=True))
        series.append(each.series("line", unit, along, each.curve.loss))
        if marks := each.curve.marks:
            along = [(mark.seconds, mark.step) for mark in marks]
            series.append(each.series("points", unit, along, [mark.loss for mark in marks]))
    log = all(value > 0 for each in series for value in each.y)
    title = "Training loss, and validation accuracy by epoch"
    return Chart(f"loss-by-{unit}", title, _axis(unit), Axis("loss", log=log), tuple(series))


def accuracy(every: Sequence[Learner], unit: str) -> Chart:
    """Validation accuracy after each epoch."""
    series = []
    for each in every:
        along = [(mark.seconds, mark.step) for mark in each.curve.marks]
        heights = [mark.accuracy for mark in each.curve.marks]
        series.append(each.series("line", unit, along, heights))
        series.append(each.series("points", unit, along, heights))
    axis = Axis("validation accuracy", percent=True)
    return Chart(f"accuracy-by-{unit}", "Validation accuracy", _axis(unit), axis, tuple(series))


def _axis(unit: str) -> Axis:
    title = {"second": "seconds of training", "epoch": "epochs", "step": "steps"}[unit]
    return Axis(title, from_zero=True)
