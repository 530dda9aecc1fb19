"""A run's metrics and timeline for other programs: whole, in the program's own words, or refused in one line."""

import csv
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from manyhands.runs import run_folder
from manyhands.timeline import Event, Timeline

METRICS = [
    {"step": 1, "loss": 2.0, "lr": 0.1, "ms": 250.0},
    {"step": 2, "loss": 1 / 3, "lr": 0.1, "ms": 50.0},
    {"step": 2, "epoch": 1, "val_loss": 0.5, "val_accuracy": 0.75, "train_seconds": 0.3},
    {"step": 3, "loss": math.nan, "lr": 1e-5, "ms": 100.0},
]
TIMELINE = Timeline.of([Event("step 1", "train", "host", 0, 5_000), Event("step 2", "train", "host", 6_000, 9_000)])


@pytest.fixture
def run(tmp_path: Path) -> run_folder.Run:
    """A run of 15 samples in batches of 8, that was stopped in its second epoch."""
    folder = tmp_path / "run"
    folder.mkdir()
    made = run_folder.create(
        folder,
        {
            "plan_words": "serial,precision=fp32",
            "created": "2026-01-01T00:00:00+00:00",
            "config": {"model": {"name": "mlp", "freeze": ["a", "b"]}, "train": {"batch_size": 8}},
            "samples": {"train": 15, "validation": 1, "test": 4},
        },
    )
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in METRICS))
    TIMELINE.save(folder / "timeline.json")
    return made.update(status="finished", result={"test_accuracy": 0.5, "val_accuracy": 0.75})


def test_csv_has_a_row_a_step(manyhands: Callable[..., Any], run: run_folder.Run, tmp_path: Path) -> None:
    said = manyhands("export", run.folder, "--csv", tmp_path / "new" / "m.csv")
    assert (said.code, said.out) == (0, f"{tmp_path}/new/m.csv: 3 rows\n")
    assert (tmp_path / "new" / "m.csv").read_text().splitlines() == [
        "step,epoch,loss,lr,ms,val_loss,val_accuracy",
        "1,1,2.0,0.1,250.0,,",
        "2,1,0.3333333333333333,0.1,50.0,0.5,0.75",
        "3,2,nan,1e-05,100.0,,",
    ]


def test_csv_of_a_run_that_does_not_know_its_samples(
    manyhands: Callable[..., Any], run: run_folder.Run, tmp_path: Path
) -> None:
    run.update(samples=None)
    assert manyhands("export", run.folder, "--csv", tmp_path / "m.csv").code == 0
    with (tmp_path / "m.csv").open() as file:
        assert [row["epoch"] for row in csv.DictReader(file)] == ["", "1", ""]  # as far as the validations tell


def test_several_at_once(manyhands: Callable[..., Any], run: run_folder.Run, tmp_path: Path) -> None:
    where = {"csv": tmp_path / "m.csv", "trace": tmp_path / "t.json", "tensorboard": tmp_path / "events"}
    words = [word for form, path in where.items() for word in (f"--{form}", path)]
    said = manyhands("export", run.folder, *words, "--json").json
    assert said["path"] == str(where["csv"])
    assert [each["form"] for each in said["exports"]] == list(where)
    assert [each.get("rows", each.get("events")) for each in said["exports"]] == [3, 2, 4]
    assert Timeline.load(where["trace"]) == TIMELINE
    assert json.loads(where["trace"].read_text())["traceEvents"]
    assert Path(said["exports"][2]["path"]).parent == where["tensorboard"]


def test_events_afterwards(manyhands: Callable[..., Any], run: run_folder.Run, tmp_path: Path) -> None:
    for _ in range(2):  # a second export replaces the first
        assert manyhands("export", run.folder, "--tensorboard", tmp_path / "events").code == 0
    assert len(list((tmp_path / "events").iterdir())) == 1
    events = EventAccumulator(str(tmp_path / "events")).Reload()
    told = {tag: [(each.step, each.value) for each in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
    assert told == {
        "train/loss": [(1, 2.0), (2, pytest.approx(1 / 3)), (3, pytest.approx(math.nan, nan_ok=True))],
        "train/lr": [(1, pytest.approx(0.1)), (2, pytest.approx(0.1)), (3, pytest.approx(1e-5))],
        "train/ms": [(1, 250.0), (2, 50.0), (3, 100.0)],
        "validation/loss": [(2, 0.5)],
        "validation/accuracy": [(2, 0.75)],
        "test/accuracy": [(3, 0.5)],
    }
    begun = 1_767_225_600  # 2026-01-01
    assert [each.wall_time - begun for each in events.Scalars("train/ms")] == pytest.approx([0.25, 0.3, 0.4])
    (order,) = events.Tensors("order")
    assert b"model.freeze = a, b" in order.tensor_proto.string_val[0]


def test_events_of_two_runs_do_not_mix(manyhands: Callable[..., Any], run: run_folder.Run, tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    (tmp_path / "events" / "events.out.tfevents.1.other").touch()
    said = manyhands("export", run.folder, "--tensorboard", tmp_path / "events")
    assert said.code == 2
    assert "has events.out.tfevents.1.other, and TensorBoard draws a folder as one run" in said.error
    assert len(list((tmp_path / "events").iterdir())) == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "say what to write: --onnx FILE or --torch FILE (the model), --csv FILE"),
        (("--csv", "x", "--trace", "x"), "x is named twice, by --csv and --trace"),
        (("--csv", "."), "is a folder: choose the name of a file"),
        (("--trace", "/proc/t.json"), "/proc/t.json"),
        (("--tensorboard", "file"), "file"),
    ],
    ids=" ".join,
)
def test_refused(
    manyhands: Callable[..., Any],
    run: run_folder.Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    told: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    said = manyhands("export", run.folder, *words)
    assert said.code == 2
    assert told in said.error
    assert sorted(each.name for each in tmp_path.iterdir()) == ["file", "run"]


@pytest.mark.parametrize("form", ["csv", "tensorboard"])
def test_a_run_without_a_step(manyhands: Callable[..., Any], run: run_folder.Run, tmp_path: Path, form: str) -> None:
    (run.folder / "metrics.jsonl").unlink()
    run.update(status="failed")
    said = manyhands("export", run.folder, f"--{form}", tmp_path / "out")
    assert said.code == 2
    assert "is failed and has no metrics" in said.error
    assert not (tmp_path / "out").exists()


def test_a_run_without_a_timeline(manyhands: Callable[..., Any], run: run_folder.Run, tmp_path: Path) -> None:
    (run.folder / "timeline.json").unlink()
    run.update(status="interrupted")
    said = manyhands("export", run.folder, "--trace", tmp_path / "t.json")
    assert said.code == 2
    assert "is interrupted and has no timeline" in said.error


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"traceEvents": [{"ph": "X"}]}', '{"traceEvents": [1]}', "null"])
def test_a_damaged_timeline_is_named(
    manyhands: Callable[..., Any], run: run_folder.Run, tmp_path: Path, content: str
) -> None:
    (run.folder / "timeline.json").write_text(content)
    said = manyhands("export", run.folder, "--trace", tmp_path / "t.json")
    assert said.code == 2
    assert f"{run.folder}/timeline.json cannot be read as a trace" in said.error
    assert not (tmp_path / "t.json").exists()
