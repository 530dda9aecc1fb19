"""The learning curve of a run, from its metrics."""

import json
import math
from typing import Any

import pytest

from manyhands.report.data.curve import MOST_POINTS, curve_of
from manyhands.runs.run_folder import Run


def write(run: Run, records: list[dict[str, Any]]) -> Run:
    (run.folder / "metrics.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in records))
    return run


def test_seconds_add_up_and_marks_lie_on_the_curve(make_run: Any) -> None:
    curve = curve_of(make_run("run", speed=256.0))  # a second a step
    assert curve.seconds == pytest.approx(range(1, 41))
    assert [mark.seconds for mark in curve.marks] == pytest.approx([20, 40])
    assert curve.marks[-1].loss == curve.loss[-1]
    assert [mark.accuracy for mark in curve.marks] == pytest.approx([0.97, 0.97])


def test_smoothing_keeps_a_constant_and_calms_noise(make_run: Any) -> None:
    noisy = [{"step": step, "loss": 1.0 + step % 2, "ms": 1.0} for step in range(1000)]
    calm = [{"step": step, "loss": 1.0, "ms": 1.0} for step in range(1000)]
    assert all(loss == pytest.approx(1.0) for loss in curve_of(write(make_run("calm"), calm)).loss)
    tail = curve_of(write(make_run("noisy"), noisy)).loss[-50:]
    assert max(tail) - min(tail) < 0.1


def test_long_runs_are_thinned_to_their_last_point(make_run: Any) -> None:
    records = [{"step": step, "loss": 1.0, "ms": 1000.0} for step in range(1001)]
    curve = curve_of(write(make_run("run"), records))
    assert len(curve.seconds) <= MOST_POINTS + 1
    assert curve.seconds[-1] == pytest.approx(1001)


def test_losses_that_are_no_numbers_are_passed_over(make_run: Any) -> None:
    losses = [1.0, math.nan, math.inf, 0.5]
    records = [{"step": step, "loss": loss, "ms": 1000.0} for step, loss in enumerate(losses)]
    curve = curve_of(write(make_run("run"), records))
    assert curve.seconds == (1.0, 4.0)
    assert all(map(math.isfinite, curve.loss))


def test_no_metrics_no_curve(make_run: Any) -> None:
    curve = curve_of(make_run("failed", speed=None))
    assert (curve.seconds, curve.steps, curve.loss, curve.marks) == ((), (), (), ())


def test_steps_of_an_epoch_are_told_by_its_end_or_by_the_order(make_run: Any) -> None:
    assert curve_of(make_run("ended", speed=256.0)).epoch == 20
    run = write(make_run("cut"), [{"step": 1, "loss": 1.0, "ms": 1.0}])
    assert curve_of(run).epoch == 20  # 5,120 samples in batches of 256
    bare = Run(run.folder, {**run.record, "samples": None})
    assert curve_of(bare).epoch is None


def test_a_curve_of_few_points_still_has_its_ends(make_run: Any) -> None:
    curve = curve_of(make_run("run", speed=256.0), most=5)
    assert curve.seconds == pytest.approx((1, 9, 17, 25, 33, 40))
    assert curve.steps == (1, 9, 17, 25, 33, 40)
