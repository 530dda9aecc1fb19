"""Run folders: found, read, and refused in one line when damaged."""

from pathlib import Path

import pytest

from manyhands.errors import InputError, StorageError
from manyhands.runs import store

RECORD = {"plan_words": "serial", "config": {}}


def test_round_trip(tmp_path: Path) -> None:
    run = store.create(tmp_path, RECORD).update(status="finished", result={"a": 1})
    assert store.load(tmp_path) == run
    assert (run.status, run.plan, run.result) == ("finished", "serial", {"a": 1})


@pytest.mark.parametrize("content", ["", "[]", "{", '{"status": "odd", "plan_words": "x"}', '{"status": "running"}'])
def test_a_damaged_run_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(InputError, match="cannot be read as a run"):
        store.load(tmp_path)
    assert store.find(tmp_path) == []


def test_find_is_by_age_and_looks_two_folders_down(tmp_path: Path) -> None:
    for name in ("b/x", "a", "c"):
        store.create(store.make_folder(tmp_path / name), RECORD)
    assert [run.name for run in store.find(tmp_path)] == ["x", "a", "c"]


def test_metrics_pass_over_a_line_that_a_kill_cut_off(tmp_path: Path) -> None:
    run = store.create(tmp_path, RECORD)
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "loss": 2}\n{"step": 2, "loss": 1}\n{"step": 3, "lo')
    assert [each["step"] for each in run.metrics()] == [1, 2]
    store.cut_metrics(run, 1)
    assert (tmp_path / "metrics.jsonl").read_text() == '{"step": 1, "loss": 2}\n'


def test_new_folders(tmp_path: Path, home: Path) -> None:
    assert store.new_folder(tmp_path / "new" / "run", "x").is_dir()
    first, second = store.new_folder(None, "x"), store.new_folder(None, "x")
    assert first != second
    assert first.parent == home / "runs"
    (first / "file").touch()
    with pytest.raises(StorageError, match="is not empty"):
        store.new_folder(first, "x")
