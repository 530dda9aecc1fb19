"""Stats: means over repeats, their deviation, and whether two of them differ by more than noise."""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


def mean_and_std(values: Sequence[float]) -> dict[str, float] | None:
    """Mean and sample deviation; None without values."""
    if not values:
        return None
    return {"mean": statistics.fmean(values), "std": statistics.stdev(values) if len(values) > 1 else 0.0}


@dataclass(frozen=True)
class Mean:
    """A mean over runs and its sample deviation (0 for one run)."""

    mean: float
    std: float
    n: int

    @property
    def error(self) -> float:
        """The standard error of the mean."""
        return self.std / math.sqrt(self.n)


def mean(values: Iterable[float | None]) -> Mean | None:
    """The mean of the numbers among the values; None when there are none."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    if not known:
        return None
    return Mean(statistics.fmean(known), statistics.stdev(known) if len(known) > 1 else 0.0, len(known))


def errors_apart(one: Mean, other: Mean) -> float | None:
    """By how many standard errors two means differ; None when single runs cannot tell."""
    if min(one.n, other.n) < 2:
        return None
    error, apart = math.hypot(one.error, other.error), abs(one.mean - other.mean)
    return apart / error if error else math.inf if apart else 0.0


def within_noise(one: Mean, other: Mean) -> bool | None:
    """Whether two means differ by less than two standard errors; None when single runs cannot tell."""
    apart = errors_apart(one, other)
    return None if apart is None else apart < 2


def times(ratio: float | None) -> str:
    """A ratio with as many digits as it bears: 12x, 3.1x, 0.92x, 1.03x."""
    if ratio is None or not math.isfinite(ratio):
        return "–"
    digits = 0 if ratio >= 10 else 1 if ratio >= 1.5 else 2
    return f"{ratio:.{digits}f}x"


def percent(value: Mean | None, digits: int = 1) -> str:
    return "–" if value is None else f"{100 * value.mean:.{digits}f} %"


def number(value: float | None, digits: int = 0) -> str:
    """A number for people; what is none, endless or unknown is a dash."""
    return "–" if value is None or not math.isfinite(value) else f"{value:,.{digits}f}"


def brief(value: float | None) -> str:
    """A number of unknown size with about four digits that count: 12,345, 3.142, 0.0001."""
    if value is None or not math.isfinite(value):
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 or value == round(value) else f"{value:.4g}"


def spread(value: Mean | None, digits: int = 0, scale: float = 1.0) -> str:
    """A mean with its deviation, where more than one run gave it."""
    if value is None:
        return "–"
    deviation = f" ± {number(scale * value.std, digits)}" if value.n > 1 else ""
    return number(scale * value.mean, digits) + deviation
