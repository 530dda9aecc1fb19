"""Rows, means and the sentence that tells what was found."""

import math
from typing import Any

import pytest

from manyhands import stats
from manyhands.report.data import layers, summary
from manyhands.report.data.group import Group
from manyhands.stats import Mean


def table(make_run: Any, **speeds: list[float | None]) -> list[summary.Row]:
    """A row for each plan, with a run for each speed."""
    return summary.rows(
        Group(label, tuple(make_run(f"{label}-{number}", speed) for number, speed in enumerate(mine)))
        for label, mine in speeds.items()
    )


def test_rows_take_the_speedup_over_the_first(make_run: Any) -> None:
    plain, serial = table(make_run, plain=[1000.0, 1200.0], serial=[3300.0, 3300.0])
    assert plain.speed == Mean(1100.0, pytest.approx(math.sqrt(20_000)), 2)
    assert plain.speedup == 1.0
    assert serial.speedup == 3.0
    assert serial.speed == Mean(3300.0, 0.0, 2)


def test_the_sentence_names_speed_and_both_accuracies(make_run: Any) -> None:
    groups = [
        Group("plain", (make_run("a", 1000.0, 0.980),)),
        Group("serial", (make_run("b", 3100.0, 0.981),)),
    ]
    found = summary.conclusion(summary.rows(groups))
    assert found == "serial trained 3.1x as fast as plain PyTorch at 98.1 % against 98.0 % test accuracy."


def test_the_sentence_is_honest_about_a_loss(make_run: Any) -> None:
    found = summary.conclusion(table(make_run, plain=[1000.0], serial=[920.0]))
    assert found == (
        "plain PyTorch was the fastest: serial trained 0.92x as fast at 98.0 % against 98.0 % test accuracy."
    )


def test_the_sentence_says_when_the_difference_is_noise(make_run: Any) -> None:
    assert "within noise" in summary.conclusion(table(make_run, plain=[1000.0, 1200.0], serial=[1050.0, 1250.0]))


@pytest.mark.parametrize(
    ("speeds", "words"),
    [
        ({"plain": [None], "serial": [None]}, "No run finished"),
        ({"plain": [None], "serial": [900.0]}, "plain PyTorch did not finish; serial was the fastest of the others"),
        ({"plain": [900.0], "serial": [None]}, "Only plain PyTorch finished, with 900 samples a second"),
        ({"serial": [900.0]}, "serial trained 900 samples a second and reached 98.0 % test accuracy."),
        ({"plain": [900.0], "a": [450.0], "b": [90.0]}, "the next, a, trained 0.50x as fast"),
    ],
)
def test_the_sentence_when_something_is_missing(make_run: Any, speeds: Any, words: str) -> None:
    assert words in summary.conclusion(table(make_run, **speeds))


def test_noise_needs_repeats() -> None:
    assert stats.within_noise(Mean(100, 0, 1), Mean(300, 5, 3)) is None
    assert stats.within_noise(Mean(100, 10, 4), Mean(113, 10, 4)) is True  # two standard errors are 14.1
    assert stats.within_noise(Mean(100, 10, 4), Mean(115, 10, 4)) is False


def test_mean_passes_over_what_is_no_number() -> None:
    assert stats.mean([None, math.nan, math.inf]) is None
    assert stats.mean([None, 2.0, math.nan]) == Mean(2.0, 0.0, 1)


def test_failed_runs_do_not_enter_the_means(make_run: Any) -> None:
    (row,) = table(make_run, serial=[1000.0, None])
    assert row.speed == Mean(1000.0, 0.0, 1)
    assert row.errors == ("out of memory",)
    assert len(row.finished) == 1


def test_the_cheap_layers_are_summed_up_in_the_models_order() -> None:
    every = [
        {"name": name, "kind": "Linear", "parameters": 1, "forward_ms": cost, "backward_ms": cost}
        for name, cost in (("a", 1.0), ("b", 9.0), ("c", 2.0), ("d", 5.0))
    ]
    shown = layers.costly(every, most=3)
    assert [(each["name"], each["forward_ms"]) for each in shown] == [("b", 9.0), ("d", 5.0), ("2 others", 3.0)]
    assert layers.costly(every, most=4) == every


@pytest.mark.parametrize(("ratio", "shown"), [(12.3, "12x"), (3.14, "3.1x"), (1.03, "1.03x"), (0.917, "0.92x")])
def test_ratios_bear_few_digits(ratio: float, shown: str) -> None:
    assert stats.times(ratio) == shown


def test_a_speedup_is_over_the_first_of_the_same_task(make_run: Any) -> None:
    other = {"config": {"model": {"name": "mlp"}, "data": {"name": "digits"}}}
    rows = summary.rows(
        [
            Group("plain", (make_run("a", 1000.0),)),
            Group("plain, mlp", (make_run("b", 9000.0, **other),)),
            Group("serial", (make_run("c", 2000.0),)),
            Group("serial, mlp", (make_run("d", 9900.0, **other),)),
        ]
    )
    assert [row.speedup for row in rows] == pytest.approx([1.0, 1.0, 2.0, 1.1])
    assert summary.conclusion(rows) == (
        "convnet on digits: serial trained 2.0x as fast as plain PyTorch at 98.0 % against 98.0 % test accuracy. "
        "mlp on digits: serial, mlp trained 1.10x as fast as plain, mlp at 98.0 % against 98.0 % test accuracy."
    )


def sureness(make_run: Any, **speeds: list[float | None]) -> list[tuple[bool, str]]:
    return list(summary.sureness(table(make_run, **speeds)))


def test_how_sure_is_told_in_standard_errors(make_run: Any) -> None:
    ((warning, words), *_) = sureness(make_run, plain=[990.0, 1010.0], serial=[1990.0, 2010.0])
    assert not warning
    assert words == (
        "How sure: serial 2,000 ± 14 against plain PyTorch 1,000 ± 14 samples a second, n = 2 and 2: "
        "71 standard errors apart, where two would be noise."
    )


def test_two_that_cannot_be_told_apart_are_named(make_run: Any) -> None:
    said = sureness(make_run, plain=[100.0, 101.0], a=[300.0, 310.0], b=[301.0, 312.0])
    assert (True, "The first two, b and a, are within noise of each other in speed.") in said


def test_single_runs_are_no_proof(make_run: Any) -> None:
    ((warning, words), *_) = sureness(make_run, plain=[100.0], a=[300.0])
    assert warning
    assert words.startswith("Single runs")
    assert sureness(make_run, alone=[300.0]) == []
