"""Scaling: points lie on the ideal line where the speed-up is ideal, below it where it is less."""

from manyhands.report.scaling_plot import BOTH, IDEAL, POINT, ROWS, scaling


def column(lines: list[str], sign: str) -> list[tuple[int, int]]:
    """Rows from the bottom and columns of a sign in the plot."""
    plot = [line.partition("┤")[2] for line in lines[:ROWS]]
    return sorted((ROWS - 1 - row, at) for row, line in enumerate(plot) for at, each in enumerate(line) if each == sign)


def test_ideal_and_less() -> None:
    lines = scaling([1, 2, 4, 8], [1.0, 2.0, 4.0, 4.0])
    assert [at for _, at in column(lines, BOTH)] == [0, 9, 18]
    assert column(lines, POINT) == [(column(lines, BOTH)[2][0], 27)]  # as high as the one before it
    assert max(column(lines, IDEAL))[0] == ROWS - 1


def test_places_may_be_empty() -> None:
    lines = scaling([1, 2, 4], [1.0, None, 0.5])
    assert len(column(lines, BOTH)) + len(column(lines, POINT)) == 2
    assert column(lines, POINT) == [(0, 18)]
    assert scaling([4], [3.0])
