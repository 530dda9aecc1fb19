"""Run folders: found, read, and refused in one line when damaged."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from manyhands.errors import InputError, StorageError
from manyhands.runs import metrics_reader, run_folder

RECORD = {"plan_words": "serial", "config": {}}


def test_round_trip(tmp_path: Path) -> None:
    run = run_folder.create(tmp_path, RECORD).update(status="finished", result={"a": 1})
    assert run_folder.load(tmp_path) == run
    assert (run.status, run.plan, run.result) == ("finished", "serial", {"a": 1})


@pytest.mark.parametrize("content", ["", "[]", "{", '{"status": "odd", "plan_words": "x"}', '{"status": "running"}'])
def test_a_damaged_run_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(InputError, match="cannot be read as a run"):
        run_folder.load(tmp_path)
    assert run_folder.find(tmp_path) == []


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"config": "x"}, "config is 'x', not a table"),
        ({"config": {"train": 3}}, "config.train is 3, not a table"),
        ({"result": [1]}, "result is [1], not a table"),
        ({"result": {"samples_per_s": "fast"}}, "result.samples_per_s is 'fast', not a number"),
        ({"result": {"test_accuracy": True}}, "result.test_accuracy is True, not a number"),
        ({"result": {"final_loss": 10**400}}, "0000, not a number"),
        ({"result": {"seconds": {"train": "long"}}}, "result.seconds.train is 'long', not a number"),
        ({"samples": {"train": {}}}, "samples.train is {}, not a number"),
        ({"layers": [{"name": "a", "kind": "b", "parameters": 1, "forward_ms": 1.0}]}, "layers.0.backward_ms is None"),
        ({"layers": [None]}, "layers.0 is None, not a table"),
        ({"trials": [{"plan": "x", "step_ms": []}]}, "trials.0.step_ms is [], not a number"),
        ({"samples": {"x" * 10**6: "y"}}, "xxx is 'y', not a number"),
        ({"case": 7}, "case is 7, not a text"),
        ({"plan_words": None}, "plan_words is None, not a text"),
        ({"status": "x" * 10**6}, "not one of running, finished, failed, interrupted"),
        ({"case": "half \ud800"}, "surrogates not allowed"),
    ],
)
def test_a_record_with_a_part_of_another_kind_is_damaged(tmp_path: Path, changes: Any, reason: str) -> None:
    record = {"status": "finished", "plan_words": "serial", "config": {}, **changes}
    (tmp_path / "run.json").write_text(json.dumps(record))
    with pytest.raises(InputError, match=re.escape(reason)) as caught:
        run_folder.load(tmp_path)
    assert len(str(caught.value)) < 600
    assert "\n" not in str(caught.value)


def test_damaged_runs_are_told_beside_the_others(tmp_path: Path) -> None:
    good = run_folder.create(run_folder.make_folder(tmp_path / "good"), RECORD)
    contents = {"torn": b"{", "not text": b"\xff\xfe", "deep": b"[" * 100_000, "huge": b" " * 16_000_001}
    for name, content in contents.items():
        run_folder.make_folder(tmp_path / name).joinpath("run.json").write_bytes(content)
    run_folder.make_folder(tmp_path / "folder" / "run.json")
    os.mkfifo(run_folder.make_folder(tmp_path / "pipe") / "run.json")  # nobody writes to it: it must not be waited for
    runs, damaged = run_folder.find_all(tmp_path)
    assert runs == [good] == run_folder.find(tmp_path)
    reasons = {folder.name: reason for folder, reason in damaged}
    assert reasons.keys() == {*contents, "folder", "pipe"}
    assert reasons["huge"] == "run.json has 16 MB: more than 16 are not read"
    assert reasons["deep"] == "nested too deeply"
    assert reasons["pipe"] == reasons["folder"] == "run.json is not a file"


def test_find_is_by_age_and_looks_two_folders_down(tmp_path: Path) -> None:
    for name in ("b/x", "a", "c"):
        run_folder.create(run_folder.make_folder(tmp_path / name), RECORD)
    assert [run.name for run in run_folder.find(tmp_path)] == ["x", "a", "c"]


def test_metrics_pass_over_a_line_that_a_kill_cut_off(tmp_path: Path) -> None:
    run = run_folder.create(tmp_path, RECORD)
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "loss": 2}\n{"step": 2, "loss": 1}\n{"step": 3, "lo')
    assert [each["step"] for each in run.metrics()] == [1, 2]
    metrics_reader.cut_metrics(run, 1)
    assert (tmp_path / "metrics.jsonl").read_text() == '{"step": 1, "loss": 2}\n'


def test_metrics_pass_over_whatever_is_no_record(tmp_path: Path) -> None:
    run = run_folder.create(tmp_path, RECORD)
    lines = [b'{"step": 1}', b"[1]", b"7", b"\xff\xfe", b"[" * 100_000, b'"x"', b"null", b'{"step": 2}']
    (tmp_path / "metrics.jsonl").write_bytes(b"\n".join(lines))
    assert list(run.metrics()) == [{"step": 1}, {"step": 2}]


def test_metrics_that_are_a_folder_are_none(tmp_path: Path) -> None:
    run = run_folder.create(tmp_path, {})
    (tmp_path / "metrics.jsonl").mkdir()
    assert list(run.metrics()) == []


def test_new_folders(tmp_path: Path, home: Path) -> None:
    assert run_folder.new_folder(tmp_path / "new" / "run", "x").is_dir()
    first, second = run_folder.new_folder(None, "x"), run_folder.new_folder(None, "x")
    assert first != second
    assert first.parent == home / "runs"
    (first / "file").touch()
    with pytest.raises(StorageError, match="is not empty"):
        run_folder.new_folder(first, "x")
