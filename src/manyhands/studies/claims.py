"""Claims: whether what a source found holds here, told in a sentence a claim with the numbers that say so.

Each of a recipe's [[claims]] has `words`, a `kind` and what that needs:

    ratio       `measure` of the best of `of` over that of the best of `over` is `above` (or `below`) a number
    peak        `measure` is highest before the last value of the axis, and falls after
    differ      `measure` differs between rows by more than noise: an analysis of variance with p below 0.05
    all above   `measure` is `above` a number in every row
    lines rise  `measure` at the end of each of the `lines` is above that of the line before
    paired      `measure` with the best of `these` values of an `axis` over that with the best of `those` is `above`
                (or at `least`) a number wherever all else is the same; `where` keeps to some values of other axes

`there` is the source's own figure, if it gives one; `ours` marks a question of ours, where the source tells no
finding. Apart by more than noise: by two standard errors.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from manyhands.errors import ConfigError, choices
from manyhands.studies.grid import label, telling

Row = Mapping[str, Any]
Told = tuple[float, str]  # a ratio, and the words for it

HOLDS, FAILS, NOISE = "holds here", "does not hold here", "cannot be told from noise here"
SECONDS = ("train_seconds", "seconds", "s an epoch", "s to 98 %")  # of which less is better
RARE = 0.05
MOST_TOLD = 6  # ratios that are told one by one


class Untestable(Exception):
    """What is needed to judge was not trained here."""


@dataclass(frozen=True)
class Value:
    """A measure of a row, with the standard error of its mean; a simulated one is exact and has no noise."""

    label: str
    mean: float
    error: float
    n: int
    exact: bool = False

    def told(self, measure: str) -> str:
        return f"{_number(measure, self.mean)} with {self.label}"


def judge(claims: Sequence[Mapping[str, Any]], rows: Sequence[Row]) -> str:
    """A sentence a claim."""
    return " ".join(_sentence(claim, rows) for claim in claims) or "The source claims nothing that could be tested."


def _sentence(claim: Mapping[str, Any], rows: Sequence[Row]) -> str:
    kind = str(claim.get("kind"))
    if kind not in KINDS:
        raise ConfigError(f"claim kind '{kind}': {choices(kind, KINDS)}")
    said = f"That {claim['words']}" if claim.get("ours") else f"The source's finding that {claim['words']}"
    try:
        verdict, told, used = KINDS[kind](claim, rows)
    except Untestable as why:
        return f"{said} cannot be tested here: {why}."
    if any(value.n < 2 and not value.exact for value in used):
        told += "; single runs do not tell noise"
    return f"{said} {verdict}: {told}."


def _values(measure: str, rows: Sequence[Row]) -> list[Value]:
    """The measure of every row that has it."""
    found = []
    for row in rows:
        value, about = row.get(measure, row.get("extra", {}).get(measure)), (row["n"], bool(row.get("exact")))
        if isinstance(value, Mapping):
            found.append(Value(row["label"], value["mean"], value["std"] / math.sqrt(max(row["n"], 1)), *about))
        elif value is not None:
            found.append(Value(row["label"], float(value), 0.0, *about))
    return found


def _best(measure: str, values: Sequence[Value]) -> Value:
    return (min if measure in SECONDS else max)(values, key=lambda value: value.mean)


def _apart(one: Value, other: Value) -> bool:
    return abs(one.mean - other.mean) > 2 * math.hypot(one.error, other.error)


def _named(measure: str, rows: Sequence[Row], labels: Sequence[str] | None) -> Value:
    """The best of the rows with these labels; of all but the first where none is named."""
    if labels is None:
        values = _values(measure, rows[1:])
        wanted = "more than one case"
    else:
        values = _values(measure, [row for row in rows if row["label"] in labels])
        wanted = " or ".join(labels)
    if not values:
        raise Untestable(f"it needs {wanted}")
    return _best(measure, values)


def _ratio(claim: Mapping[str, Any], rows: Sequence[Row]) -> tuple[str, str, list[Value]]:
    measure = claim["measure"]
    one, other = (_named(measure, rows, claim.get(key)) for key in ("of", "over"))
    ratio, error = _over(one, other)
    limit = claim.get("above", claim.get("below"))
    holds = ratio > limit if "above" in claim else ratio < limit
    verdict = NOISE if abs(ratio - limit) < 2 * error else HOLDS if holds else FAILS
    there = f" (there {claim['there']:g} times)" if "there" in claim else ""
    spread = f" ± {error:.2f}" if error else ""
    told = f"{one.told(measure)} against {other.told(measure)}, {ratio:.2f}{spread} times{there}"
    return verdict, told, [one, other]


def _over(one: Value, other: Value) -> tuple[float, float]:
    """A ratio and its standard error."""
    ratio = one.mean / other.mean
    return ratio, ratio * math.hypot(one.error / one.mean, other.error / other.mean)


def _paired(claim: Mapping[str, Any], rows: Sequence[Row]) -> tuple[str, str, list[Value]]:
    limit = claim.get("above", claim.get("least"))
    found: list[tuple[str, Told]] = []
    used: list[Value] = []
    for same, one, other in _pairs(claim, rows):
        ratio, error = _over(one, other)
        holds = ratio > limit if "above" in claim else ratio >= limit
        verdict = NOISE if abs(ratio - limit) < 2 * error else HOLDS if holds else FAILS
        spread = f" ± {error:.2f}" if error else ""
        found.append((verdict, (ratio, f"{ratio:.2f}{spread} times{f' with {same}' if same else ''}")))
        used += [one, other]
    if not found:
        raise Untestable(f"it needs {' or '.join(claim['these'])} beside {' or '.join(claim['those'])}")
    there = f" (there {claim['there']:g} times)" if "there" in claim else ""
    holding = [told for verdict, told in found if verdict == HOLDS]
    others = [told for verdict, told in found if verdict != HOLDS]
    if holding and others:
        some = f"holds here in {len(holding)} of {len(found)} cases"
        return some, f"{_brief(holding)}; in the others {_brief(others)}{there}", used
    verdict = HOLDS if holding else NOISE if all(verdict == NOISE for verdict, _ in found) else FAILS
    return verdict, _brief(holding or others) + there, used


def _brief(told: Sequence[Told]) -> str:
    """All ratios, or the least and the greatest of many."""
    if len(told) <= MOST_TOLD:
        return ", ".join(words for _, words in told)
    return f"from {min(told)[1]} to {max(told)[1]}"


def _pairs(claim: Mapping[str, Any], rows: Sequence[Row]) -> Iterator[tuple[str, Value, Value]]:
    """What is the same, and the best of each side there."""
    kept = [row for row in rows if all(row["cell"].get(key) in of for key, of in claim.get("where", {}).items())]
    other_axes = telling([row["cell"] for row in kept]) - {claim["axis"]}
    alike: dict[str, list[Row]] = {}
    for row in kept:
        same = label({key: value for key, value in row["cell"].items() if key in other_axes}) if other_axes else ""
        alike.setdefault(same, []).append(row)
    for same, group in alike.items():
        sides = [[row for row in group if row["cell"].get(claim["axis"]) in claim[of]] for of in ("these", "those")]
        one, other = (_values(claim["measure"], side) for side in sides)
        if one and other:
            yield same, _best(claim["measure"], one), _best(claim["measure"], other)


def _peak(claim: Mapping[str, Any], rows: Sequence[Row]) -> tuple[str, str, list[Value]]:
    values = _values(claim["measure"], rows)
    if len(values) < 2:
        raise Untestable("it needs two cases or more")
    best, last = _best(claim["measure"], values), values[-1]
    told = f"best was {best.told(claim['measure'])}, the last {last.told(claim['measure'])}"
    if best is last:
        return FAILS, told, values
    return HOLDS if _apart(best, last) else NOISE, told, values


def _lines_rise(claim: Mapping[str, Any], rows: Sequence[Row]) -> tuple[str, str, list[Value]]:
    by_line = ([row for row in rows if row["cell"].get("line") == line] for line in claim["lines"])
    ends = [_values(claim["measure"], each) for each in by_line]
    values = [line[-1] for line in ends if len(line) > 1]
    if len(values) < 2:
        raise Untestable("it needs two lines of two cases or more")
    told = ", ".join(value.told(claim["measure"]) for value in values)
    rising = all(after.mean > before.mean for before, after in pairwise(values))
    return HOLDS if rising else FAILS, told, values


def _differ(claim: Mapping[str, Any], rows: Sequence[Row]) -> tuple[str, str, list[Value]]:
    values = sorted(_values(claim["measure"], rows), key=lambda value: value.mean)
    if len(values) < 2:
        raise Untestable("it needs two cases or more")
    low, high = values[0], values[-1]
    told = f"from {low.told(claim['measure'])} to {high.told(claim['measure'])}"
    repeated = [value for value in values if value.n > 1]
    if len(repeated) < 2:
        return HOLDS if low.mean != high.mean else FAILS, told, [low, high]
    chance = _chance(repeated)
    return HOLDS if chance < RARE else NOISE, f"{told} (p = {chance:.2g})", [low, high]


def _chance(values: Sequence[Value]) -> float:
    """How likely means this far apart are if all cases were alike: an analysis of variance over them."""
    from scipy.stats import f  # here: it takes half a second to import

    count = sum(value.n for value in values)
    mean = sum(value.n * value.mean for value in values) / count
    between = sum(value.n * (value.mean - mean) ** 2 for value in values) / (len(values) - 1)
    within = sum((value.n - 1) * value.n * value.error**2 for value in values) / (count - len(values))
    return float(f.sf(between / within, len(values) - 1, count - len(values))) if within else 0.0


def _all_above(claim: Mapping[str, Any], rows: Sequence[Row]) -> tuple[str, str, list[Value]]:
    values = _values(claim["measure"], rows)
    if not values:
        raise Untestable("nothing was trained")
    told = ", ".join(value.told(claim["measure"]) for value in values)
    if len(values) > MOST_TOLD:
        ends = min(values, key=lambda value: value.mean), max(values, key=lambda value: value.mean)
        told = f"from {ends[0].told(claim['measure'])} to {ends[1].told(claim['measure'])}"
    above = sum(value.mean > claim["above"] for value in values)
    some = f"holds here in {above} of {len(values)} cases"
    return HOLDS if above == len(values) else some if above else FAILS, told, values


KINDS: dict[str, Callable[[Mapping[str, Any], Sequence[Row]], tuple[str, str, list[Value]]]] = {
    "ratio": _ratio,
    "peak": _peak,
    "differ": _differ,
    "all above": _all_above,
    "lines rise": _lines_rise,
    "paired": _paired,
}


def _number(measure: str, value: float) -> str:
    if measure == "test_accuracy":
        return f"{100 * value:.2f} %"
    if measure in SECONDS:
        return f"{value:.2f} s"
    return f"{value:,.0f} samples/s" if measure == "samples_per_s" else f"{value:.2f}"
