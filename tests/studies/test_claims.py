"""Findings follow the numbers: for every kind of claim a case that holds, one that does not, and one that is noise."""

from statistics import fmean, stdev
from typing import Any

import pytest
from scipy.stats import f_oneway

from manyhands.errors import ConfigError
from manyhands.studies import scaling_laws
from manyhands.studies.claims import judge
from manyhands.studies.record import Fit


def row(label: str, mean: float | None, std: float = 0.0, n: int = 3, line: str = "") -> dict[str, Any]:
    return {
        "label": label,
        "n": n,
        "cell": {"line": line},
        "train_seconds": None if mean is None else {"mean": mean, "std": std},
        "test_accuracy": None if mean is None else {"mean": mean, "std": std},
        "extra": {"speed-up": mean},
    }


def claim(kind: str, **more: Any) -> list[dict[str, Any]]:
    return [{"words": "it is so", "kind": kind, "measure": "train_seconds", **more}]


RATIO = claim("ratio", of=["one"], over=["two", "four"], above=1, there=8)


@pytest.mark.parametrize(
    ("claims", "rows", "told"),
    [
        (RATIO, [row("one", 2, 0.1), row("two", 1, 0.1)], "holds here: 2.00 s with one against 1.00 s with two, 2.0"),
        (RATIO, [row("one", 2, 0.1), row("two", 1, 0.1)], "times (there 8 times)."),
        (RATIO, [row("one", 1, 0.1), row("two", 2, 0.1)], "does not hold here"),
        (RATIO, [row("one", 2, 0.9), row("two", 1.9, 0.9)], "cannot be told from noise here"),
        (RATIO, [row("one", 3), row("two", 2), row("four", 1)], "1.00 s with four"),
        (RATIO, [row("one", 2, n=1), row("two", 1, n=1)], "single runs do not tell noise."),
        (RATIO, [row("one", 2), row("two", None, n=0)], "cannot be tested here: it needs two or four."),
        (claim("ratio", of=["one"], below=1.01), [row("one", 1), row("b", 2)], "holds here"),
        (claim("ratio", of=["one"], below=1.01), [row("one", 2), row("b", 1)], "does not hold here"),
        (claim("ratio", of=["one"], below=1.01), [row("one", 2)], "it needs more than one case"),
        (claim("peak", measure="test_accuracy"), [row("1", 0.5), row("2", 0.9), row("4", 0.7)], "holds here: best was"),
        (claim("peak", measure="test_accuracy"), [row("1", 0.5), row("2", 0.7)], "does not hold here"),
        (claim("peak", measure="test_accuracy"), [row("1", 0.71, 0.1), row("2", 0.7, 0.1)], "from noise"),
        (claim("peak"), [row("1", 1)], "it needs two cases"),
        (claim("differ"), [row("a", 1, 0.01), row("b", 2, 0.01), row("c", 1, 0.01)], "holds here: from 1.00 s with"),
        (claim("differ"), [row("a", 1, 1), row("b", 1.1, 1), row("c", 1.05, 1)], "cannot be told from noise here"),
        (claim("differ"), [row("a", 1, n=1), row("b", 2, n=1)], "single runs do not tell noise"),
        (claim("all above", above=1.5), [row("a", 2), row("b", 1.6)], "holds here: 2.00 s with a, 1.60 s with b"),
        (claim("all above", above=1.5), [row("a", 2), row("b", 1.4)], "holds here in 1 of 2 cases: 2.00 s with a"),
        (claim("all above", above=1.5), [row("a", 1), row("b", 1.4)], "does not hold here"),
        (claim("all above", above=1.5), [row("a", None, n=0)], "nothing was trained"),
        (claim("all above", above=1), [row(str(n), n) for n in range(8)],
         "6 of 8 cases: from 0.00 s with 0 to 7.00 s"),
    ],
)  # fmt: skip
def test_a_claim(claims: list[dict[str, Any]], rows: list[dict[str, Any]], told: str) -> None:
    said = judge(claims, rows)
    assert said.startswith("The source's finding that it is so ")
    assert told in said


def test_lines_that_rise() -> None:
    def lines(last: float) -> list[dict[str, Any]]:
        ends = {"small": 1.5, "large": last}
        return [row(f"{line}, {n}", 1.0 if n == 1 else ends[line], line=line) for line in ends for n in (1, 2)]

    claims = claim("lines rise", measure="speed-up", lines=["small", "large"])
    assert "holds here: 1.50 with small, 2, 1.90 with large, 2" in judge(claims, lines(1.9))
    assert "does not hold here" in judge(claims, lines(1.4))
    assert "it needs two lines" in judge(claims, lines(1.9)[:3])


def test_pairs() -> None:
    def cells(*speeds: float, std: float = 0.0, exact: bool = False) -> list[dict[str, Any]]:
        plans = [(batch, plan) for batch in (8, 16) for plan in ("serial", "data:2", "data:4")]
        return [
            {
                "label": f"{plan}, {batch}",
                "n": 1 if exact else 4,
                "exact": exact,
                "cell": {"train.batch_size": batch, "plan": plan, "line": "one"},
                "samples_per_s": {"mean": speed, "std": std},
            }
            for (batch, plan), speed in zip(plans, speeds, strict=True)
        ]

    base = {"measure": "samples_per_s", "axis": "plan", "these": ["serial"], "those": ["data:2", "data:4"]}
    claims = claim("paired", **base, above=1, there=3)
    assert "holds here: 2.00 times with batch 8, 1.50 times with batch 16 (there 3 times)." in judge(
        claims, cells(4, 1, 2, 3, 2, 1, exact=True)
    )
    assert "does not hold here: 0.50 ± 0.01 times with batch 8" in judge(claims, cells(1, 2, 1, 1, 2, 2, std=0.05))
    some = judge(claims, cells(4, 1, 2, 1, 2, 1))
    assert "holds here in 1 of 2 cases: 2.00 times with batch 8; in the others 0.50 times with batch 16 (th" in some
    assert "cannot be told from noise here" in judge(claims, cells(1, 1, 1, 1, 1, 1, std=0.5))
    assert "holds here: 1.00 times" in judge(claim("paired", **base, least=1), cells(1, 1, 1, 1, 1, 1))
    kept = claim("paired", **base, above=1, where={"train.batch_size": [8], "line": ["one"]})
    assert "holds here: 4.00 times." in judge(kept, cells(4, 1, 1, 1, 2, 2))
    assert "it needs serial beside data:2 or data:4" in judge(claims, cells(1, 1, 1, 1, 1, 1)[:1])


def test_many_pairs_are_told_by_the_least_and_the_greatest() -> None:
    rows = [
        {"label": "x", "n": 4, "cell": {"plan": plan, "b": batch}, "train_seconds": {"mean": seconds, "std": 0.0}}
        for batch in range(1, 9)
        for plan, seconds in (("full", 4.0 * batch), ("delta", 1.0))
    ]
    claims = claim("paired", axis="plan", these=["full"], those=["delta"], above=1)
    assert "holds here: from 4.00 times with 1 to 32.00 times with 8." in judge(claims, rows)


def test_words() -> None:
    assert judge([], []) == "The source claims nothing that could be tested."
    two = [*claim("all above", above=0, ours=True), *claim("all above", above=0)]
    assert judge(two, [row("a", 1)]).count("holds here") == 2
    assert judge(two, [row("a", 1)]).startswith("That it is so holds here")
    with pytest.raises(ConfigError, match="claim kind 'rato': did you mean 'ratio'"):
        judge(claim("rato"), [])


def test_the_chance_is_that_of_an_analysis_of_variance() -> None:
    samples = [[0.9, 1.0, 1.3], [1.9, 2.0, 2.05], [1.5, 1.2, 1.8, 1.6]]
    rows = [row(str(each), fmean(each), stdev(each), len(each)) for each in samples]
    assert f"(p = {f_oneway(*samples).pvalue:.2g})" in judge(claim("differ"), rows)


@pytest.mark.parametrize("share", [0.0, 0.05, 0.5, 1.0])
@pytest.mark.parametrize("law", [scaling_laws.AMDAHL, scaling_laws.GUSTAFSON])
def test_a_law_is_found_again(law: str, share: float) -> None:
    points = [(ranks, Fit("", share, (), law).speedup(ranks)) for ranks in (1, 2, 4, 16)]
    assert scaling_laws.fit(law, points) == pytest.approx(share, abs=1e-6)


@pytest.mark.parametrize("law", [scaling_laws.AMDAHL, scaling_laws.GUSTAFSON])
def test_a_law_stays_a_share(law: str) -> None:
    assert scaling_laws.fit(law, [(1, 1.0), (2, 2.5)]) == 0  # faster than ideal: caches
    assert scaling_laws.fit(law, [(1, 1.0), (2, 0.4)]) == 1
    assert scaling_laws.fit(law, [(1, 1.0)]) == 0
