"""The numbers of a run from its first step to its last."""

import json
import math
from pathlib import Path

from manyhands.report.data.history import history, losses
from manyhands.runs import run_folder


def run_of(folder: Path, *lines: object) -> run_folder.Run:
    run = run_folder.create(folder, {"plan_words": "serial"})
    texts = (line if isinstance(line, str) else json.dumps(line) for line in lines)
    (folder / "metrics.jsonl").write_text("\n".join(texts))
    return run


def test_first_last_and_best(tmp_path: Path) -> None:
    run = run_of(
        tmp_path,
        {"step": 1, "loss": 3.0, "lr": 0.1, "ms": 9.0},
        {"step": 2, "loss": 0.5, "lr": 0.2, "ms": 4.0},
        {"step": 2, "epoch": 1, "val_loss": 1.0, "val_accuracy": 0.9},
        {"step": 3, "loss": math.nan, "lr": 0.1, "ms": 5.0},
        {"step": 3, "epoch": 2, "val_loss": 0.1, "val_accuracy": 0.8},
        '{"step": 4, "lo',
    )
    found = {key: (each.first, each.last, each.best) for key, each in history(run).items()}
    assert found == {
        "loss": (3.0, None, 0.5),
        "lr": (0.1, 0.1, None),
        "val_accuracy": (0.9, 0.8, 0.9),
        "ms": (9.0, 5.0, 4.0),
    }


def test_a_run_without_metrics_has_no_history(tmp_path: Path) -> None:
    run = run_folder.create(tmp_path, {"plan_words": "serial"})
    assert history(run) == {}
    assert losses(run, 10) == []


def test_a_glance_spreads_over_the_whole_run(tmp_path: Path) -> None:
    lines = [{"step": step, "loss": float(step)} for step in range(1000)]
    run = run_of(tmp_path, *lines, {"step": 999, "val_loss": 5.0}, '{"loss": "much"}', '{"loss": [')
    glance = losses(run, 50)
    assert 40 <= len(glance) <= 50
    assert (glance[0], glance[1]) == (0.0, 21.0)
    assert glance[-1] > 970
    assert losses(run, 10_000)[:1000] == [float(step) for step in range(1000)]
    assert all(map(math.isnan, losses(run, 10_000)[1000:]))
