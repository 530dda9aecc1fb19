"""Scaling plot: speed-up over numbers of devices as a small plot of text beside the ideal line."""

import math
from collections.abc import Sequence

ROWS = 9
GAP, WIDEST = 9, 60  # columns from one doubling to the next, and of all
POINT, IDEAL, BOTH = "●", "·", "◉"


def scaling(devices: Sequence[int], speedups: Sequence[float | None]) -> list[str]:
    """Lines; a number without a speed-up leaves its place empty."""
    known = [each for each in speedups if each]
    top = max(*devices, *known, 2)
    bottom = min([1.0, *known])
    gap = min(GAP, WIDEST / max(math.log2(devices[-1] / devices[0]), 1))  # columns of a doubling
    places = [round(gap * math.log2(each / devices[0])) for each in devices]
    width = places[-1] + 1
    grid = [[" "] * width for _ in range(ROWS)]

    def row(value: float) -> int:
        share = math.log(value / bottom) / math.log(top / bottom)
        return ROWS - 1 - min(max(round(share * (ROWS - 1)), 0), ROWS - 1)

    for column in range(width):
        grid[row(devices[0] * 2 ** (column / gap))][column] = IDEAL
    for place, speedup in zip(places, speedups, strict=True):
        if speedup:
            grid[row(speedup)][place] = BOTH if grid[row(speedup)][place] == IDEAL else POINT
    labels = {row(value): _label(value) for value in (bottom, math.sqrt(top * bottom), top)}
    lines = [f"{labels.get(number, ''):>7} ┤{''.join(cells)}" for number, cells in enumerate(grid)]
    axis = [" "] * (width + 10)
    for place, number in zip(places, devices, strict=True):
        axis[place : place + len(str(number))] = str(number)
    return [
        *lines,
        " " * 8 + "└" + "─" * width,
        " " * 9 + "".join(axis).rstrip() + " devices",
        f"{POINT} predicted  {IDEAL} ideal  {BOTH} both",
    ]


def _label(value: float) -> str:
    return f"{value:,.0f}x" if value >= 100 else f"{value:.3g}x"
