"""The charts of a tuned batch size."""

from typing import Any

import pytest

from manyhands.report.charts.batch_size import charts
from manyhands.report.matplotlib_backend import picture


def told(**changes: Any) -> dict[str, Any]:
    sizes = (16, 64, 256, 1024, 4096)
    rows = [{"batch_size": size, "steps_to_target": 50 + 12_800 / size, "seconds_to_target": 1.0} for size in sizes]
    rows.append({"batch_size": 8192, "steps_to_target": None, "seconds_to_target": None})
    law = {
        "least_steps": 50, "least_samples": 12_800, "critical_batch": 256,
        "perfect_until": 256 / 3, "stagnates_from": 768,
    }  # fmt: skip
    return {"table": rows, "law": law, "critical_batch": 300.0, **changes}


def names(result: dict[str, Any]) -> list[str]:
    """What is written in the first chart, and the legend."""
    return [name for series in charts(result)[0].series for name in (series.words or (series.name,)) if name]


def test_regimes_and_critical_batch_are_marked() -> None:
    steps, time = charts(told())
    assert [len(series.x) for series in steps.series if series.name == "measured"] == [5]
    assert names(told()) == [
        "perfect scaling", "fitted", "measured", "critical batch by the noise", "perfect scaling", "diminishing",
        "stagnation",
    ]  # fmt: skip
    edges = [series.x for series in time.series if series.faint]
    assert edges == [(256 / 3, 256 / 3), (768, 768)]


@pytest.mark.parametrize(
    ("critical", "seen"),
    [(1.0, ["stagnation"]), (1e6, ["perfect scaling"]), (2000.0, ["perfect scaling", "diminishing"])],
)
def test_only_what_is_in_sight(critical: float, seen: list[str]) -> None:
    edges = {"critical_batch": critical, "perfect_until": critical / 3, "stagnates_from": 3 * critical}
    result = told(law={**told()["law"], **edges}, critical_batch=None)
    assert names(result)[3:] == seen


def test_every_picture_is_one() -> None:
    nothing = [{"batch_size": 64, "steps_to_target": None, "seconds_to_target": None}]
    no_limit = {**told()["law"], "critical_batch": None, "perfect_until": None, "stagnates_from": None}
    for result in (told(), told(law=None), told(law=no_limit), told(table=nothing, law=None, critical_batch=None)):
        assert picture(charts(result), "a finding").startswith(b"\x89PNG")
