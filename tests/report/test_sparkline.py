"""A curve in one line: as high as its values, whatever they are."""

import math

import pytest

from manyhands.report.sparkline import spark

NAN, ENDLESS = math.nan, math.inf


@pytest.mark.parametrize(
    ("values", "width", "line"),
    [
        ([], 5, ""),
        ([1, 2, 3], 0, ""),
        ([0, 1, 2, 3, 4, 5, 6, 7], 8, "▁▂▃▄▅▆▇█"),
        ([7, 6, 5, 4, 3, 2, 1, 0], 8, "█▇▆▅▄▃▂▁"),
        ([0.0, 0.7], 20, "▁█"),  # not more blocks than values
        ([0, 2, 6, 8], 2, "▁█"),
        ([0, 0, 7, 7, 14, 14], 3, "▁▅█"),
        ([3, 3, 3], 8, "▄▄▄"),
        ([-1e9], 8, "▄"),
        ([NAN, 0, NAN, 7], 4, " ▁ █"),
        ([0, NAN, 7, ENDLESS], 2, "▁█"),  # what is no number does not weigh
        ([NAN, -ENDLESS], 2, "  "),
        ([1.7e308, 1.7e308, -1.7e308], 3, "▄▄▄"),  # so far apart that no float says how far
        ([5e-324, 0.0], 2, "█▁"),
    ],
)
def test_lines(values: list[float], width: int, line: str) -> None:
    assert spark(values, width) == line


@pytest.mark.parametrize("count", [29, 30, 31, 1000, 1001])
def test_every_value_counts_once(count: int) -> None:
    """One high value lifts the one block that it falls into, wherever it is."""
    for at in range(0, count, 7):
        line = spark([1.0 if number == at else 0.0 for number in range(count)], 30)
        assert len(line) == min(30, count)
        assert line.count("█") == 1
        assert line.index("█") == pytest.approx(at * len(line) / count, abs=1)
