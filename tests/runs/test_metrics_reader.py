"""Time per epoch and to an accuracy, from what a run's validations tell; side by side in the rows of a comparison."""

import json
from pathlib import Path
from typing import Any

import pytest

from manyhands.cli.compare import show
from manyhands.runs import run_folder
from manyhands.runs.metrics_reader import epoch_seconds, seconds_to
from manyhands.studies.aggregate import rows

RESULT = {"plan": "data:2", "samples_per_s": 10.0, "test_accuracy": 0.9, "seconds": {"train": 8.0}}


def made(folder: Path, *validations: tuple[Any, Any, Any], **result: Any) -> run_folder.Run:
    """A finished run with these validations: epoch, seconds, accuracy."""
    folder.mkdir()
    run = run_folder.create(folder, {"plan_words": "data:2", "config": {}})
    lines = [{"step": 1, "loss": 2.0, "lr": 0.1, "ms": 3.0}]
    lines += [
        {"step": number, "epoch": epoch, "val_accuracy": accuracy, "train_seconds": seconds}
        for number, (epoch, seconds, accuracy) in enumerate(validations)
    ]
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return run.update(status="finished", result={**RESULT, **result})


def test_times(tmp_path: Path) -> None:
    run = made(tmp_path / "a", (1, 2.0, 0.9), (2, 4.0, 0.985), (3, 6.0, 0.97), (3, 7.0, 0.99))
    assert epoch_seconds(run) == 2.0  # what follows the third epoch is none
    assert seconds_to(run) == 4.0
    assert seconds_to(run, 0.99) == 7.0
    assert seconds_to(run, 0.995) is None


@pytest.mark.parametrize("validations", [(), ((0, 1.0, 0.5),), (("x", None, 0.5),)])
def test_no_epoch(tmp_path: Path, validations: Any) -> None:
    assert epoch_seconds(made(tmp_path / "a", *validations)) is None


def test_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A mean over runs that all got there; how late gradients were, where a plan tells it."""
    both = [made(tmp_path / name, (1, seconds, 0.98), (2, 2 * seconds, 0.99)) for name, seconds in (("a", 1), ("b", 3))]
    late = [
        made(tmp_path / "c", (1, 4.0, 0.98), staleness={"mean": 1.5, "max": 4, "histogram": {"1": 3, "2": 3}}),
        made(tmp_path / "d", (1, 4.0, 0.97), staleness={"mean": 2.5, "max": 3}),
    ]
    sync, stale = found = rows(["sync", "stale"], [both, late])
    assert sync["epoch_seconds"] == {"mean": 2.0, "std": pytest.approx(2**0.5)}
    assert sync["target_seconds"] == {"mean": 2.0, "std": pytest.approx(2**0.5)}
    assert sync["staleness"] is None
    assert stale["staleness"] == {"mean": 2.0, "max": 4}
    assert stale["epoch_seconds"] == {"mean": 4.0, "std": 0.0}
    assert stale["target_seconds"] is None  # one of two did not get there
    monkeypatch.setenv("COLUMNS", "200")
    show({"rows": found, "out": "x"})
    shown = capsys.readouterr().out
    for words in ("staleness", "2.00, at most 4", "s to 98 %", "2.00 ± 1.41"):
        assert words in shown
    show({"rows": found[:1], "out": "x"})
    assert "staleness" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("staleness", "told"), [(3, "result.staleness is 3, not a table"), ({"max": "x"}, "result.staleness.max is 'x'")]
)
def test_staleness_that_is_none_is_damage(tmp_path: Path, staleness: Any, told: str) -> None:
    made(tmp_path / "a", staleness=staleness)
    ((_, reason),) = run_folder.find_all(tmp_path)[1]
    assert told in reason
