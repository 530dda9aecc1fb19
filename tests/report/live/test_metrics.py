"""The curves, comparisons and timelines of the live page: read on, cut down, and safe from whatever a file says."""

import json
from pathlib import Path
from typing import Any

import pytest

from manyhands.report.live.detail import Details
from manyhands.report.live.index import Index
from manyhands.report.live.metrics import MOST_POINTS, Metrics

MakeRun = Any


def steps(first: int, last: int, loss: float = 1.0) -> str:
    return "".join(f'{{"step": {at}, "loss": {loss}, "lr": 0.1, "ms": 100.0}}\n' for at in range(first, last + 1))


def test_metrics_are_read_on_from_where_the_last_look_ended(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    metrics = Metrics(str(path))
    assert metrics.read() == (_empty(), [])
    path.write_text(steps(1, 3) + '{"step": 4, "loss"')
    curve, _ = metrics.read()
    assert (curve["step"], curve["seconds"]) == ([1, 2, 3], [0.1, 0.2, 0.3])
    offset = metrics.offset
    with path.open("a") as file:
        file.write(': 7.0, "ms": 100.0}\n{"step": 4, "epoch": 1, "val_loss": 2.0, "val_accuracy": 0.5}\n')
    curve, warnings = metrics.read()
    assert metrics.offset > offset > 0
    assert curve["loss"] == [1.0, 1.0, 1.0, 7.0]
    assert curve["marks"] == {"step": [4], "epoch": [1], "val_accuracy": [0.5], "val_loss": [2.0], "seconds": [0.4]}
    assert warnings == []


def _empty() -> dict[str, Any]:
    marks: dict[str, list[float]] = {name: [] for name in ("step", "epoch", "val_accuracy", "val_loss", "seconds")}
    return {"step": [], "seconds": [], "loss": [], "marks": marks}


@pytest.mark.parametrize("aside", [True, False], ids=["in a new file", "in the same file"])
def test_a_resumed_run_has_cut_its_metrics(tmp_path: Path, aside: bool) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(steps(1, 50))
    metrics = Metrics(str(path))
    metrics.read()
    if aside:
        (tmp_path / "aside").write_text(steps(1, 60, 3.0))  # longer than what was read
        (tmp_path / "aside").replace(path)
    else:
        path.write_text(steps(1, 20, 3.0))
    curve, _ = metrics.read()
    assert curve["step"][-1] == (60 if aside else 20)
    assert set(curve["loss"]) == {3.0}


def test_lines_that_are_no_metrics_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(
        steps(1, 2).encode() + b"\xff\xfe\nnull\n[1\n2]\n{}\n" + b"[" * 5000 + b"\n\n" + steps(3, 3).encode()
    )
    curve, (warning,) = Metrics(str(path)).read()
    assert curve["step"] == [1, 2, 3]
    assert warning.startswith("6 lines of metrics.jsonl are no metrics")


def test_losses_that_are_no_numbers_leave_a_gap(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    losses = ("1.0", "NaN", "Infinity", "1e999", '"2.0"', "null", "3.0")
    path.write_text("".join(f'{{"step": {at}, "loss": {loss}, "ms": 1.0}}\n' for at, loss in enumerate(losses)))
    curve, _ = Metrics(str(path)).read()
    assert curve["loss"] == [1.0, None, None, None, None, None, 3.0]
    json.dumps(curve, allow_nan=False)


@pytest.mark.parametrize("count", [MOST_POINTS, MOST_POINTS + 1, 12_345])
def test_a_long_curve_keeps_its_shape_in_few_points(tmp_path: Path, count: int) -> None:
    path = tmp_path / "metrics.jsonl"
    lines = (f'{{"step": {at}, "loss": {at / count}, "ms": 1000.0}}\n' for at in range(1, count + 1))
    path.write_text("".join(lines))
    curve, _ = Metrics(str(path)).read()
    assert MOST_POINTS / 2 <= len(curve["loss"]) <= MOST_POINTS
    assert (curve["step"][-1], curve["seconds"][-1]) == (count, count)
    assert curve["loss"] == sorted(curve["loss"])
    width = curve["step"][0]
    assert curve["loss"][0] == pytest.approx((width + 1) / 2 / count)  # the mean of its steps
    assert len(curve["step"]) == -(-count // width)


def test_runs_are_compared_by_the_keys_in_which_they_differ(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("one", plan={"axes": ["plain"], "precision": "fp32"}, versions={"torch": "2.13.0"})
    make_run("two", plan={"axes": ["serial"], "precision": "fp32", "threads": 2}, versions={"torch": "2.14.0"})
    entries = list(Index(tmp_path).refresh().entries.values())
    compared = Details().compared(entries)
    assert compared["differs"] == {
        "plan.axes": ["plain", "serial"],
        "plan.threads": [None, "2"],
        "versions.torch": ["2.13.0", "2.14.0"],
    }
    assert [len(curve["loss"]) for curve in compared["curves"]] == [40, 40]


def test_a_timeline_is_capped_at_its_longest_events(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run("one")
    spans = [
        {"ph": "X", "name": f"step {at}", "cat": "train", "pid": 0, "tid": 0, "ts": 1000.0 * at, "dur": 1.0 + at}
        for at in range(2500)
    ]
    lane = {"ph": "M", "name": "thread_name", "pid": 0, "tid": 0, "args": {"name": "rank 0"}}
    (run.folder / "timeline.json").write_text(json.dumps({"traceEvents": [lane, *spans]}))
    (run.folder / "predicted.json").write_text('{"traceEvents": [{"ph": "X", "ts": NaN}]}')
    (entry,) = Index(tmp_path).refresh().entries.values()
    detail = Details().of(entry)
    measured = detail["timelines"]["measured"]
    assert (len(measured["events"]), measured["left_out"]) == (2000, 500)
    assert measured["events"][0] == [0, "step 500", "train", 500.0, 0.501]
    assert measured["lanes"] == ["rank 0"]
    assert detail["timelines"]["predicted"] is None
    assert any(words.startswith("predicted.json is no timeline") for words in detail["warnings"])
