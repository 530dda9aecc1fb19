"""The index of a folder: what it finds, and what it reads again."""

import json
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from manyhands.report.live import index as index_module
from manyhands.report.live.index import Index, Snapshot
from manyhands.runs import run_folder

MakeRun = Any


def look(index: Index) -> Snapshot:
    """Look now, however short ago the last look was."""
    index.looked = float("-inf")
    return index.refresh()


def rows(index: Index) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in look(index).to_json()["rows"]}


def test_a_row_has_the_figures_of_its_run(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("one", 2000.0, 0.97)
    row = rows(Index(tmp_path))["one"]
    assert row["status"] == "finished"
    assert row["samples_per_s"] == 2000.0
    assert (row["accuracy"], row["tested"]) == (0.97, True)
    assert (row["model"], row["data"], row["epochs"]) == ("convnet", "digits", 2)
    assert row["spark"][0] > row["spark"][-1] > 0


def test_runs_are_found_where_the_store_finds_them(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("one")
    shutil.copytree(make_run("two").folder, tmp_path / "comparison" / "0-plain")
    index = Index(tmp_path)
    assert {row["folder"] + "/" + row["name"] for row in look(index).to_json()["rows"]} == {
        "/one",
        "/two",
        "comparison/0-plain",
    }
    assert len(run_folder.find(tmp_path)) == 3
    (alone,) = rows(Index(tmp_path / "one"))  # a run's own folder can be served too
    assert alone == "one"


def test_what_has_not_changed_is_not_read_again(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("one")
    two = make_run("two")
    index = Index(tmp_path)
    before = look(index)
    two.update(status="failed", error="out of memory", result=None)
    after = look(index)
    kept = {entry.found.name: entry for entry in before.entries.values()}
    assert {entry.found.name: entry is kept[entry.found.name] for entry in after.entries.values()} == {
        "one": True,
        "two": False,
    }


def test_changes_since_a_state_are_told_alone(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("one")
    two = make_run("two")
    index = Index(tmp_path)
    first = look(index)
    assert first.since(first.tag) is None
    two.update(status="failed", error="out of memory", result=None)
    changes = look(index).since(first.tag)
    assert changes is not None
    assert [(row["name"], row["status"]) for row in changes["rows"]] == [("two", "failed")]
    shutil.rmtree(tmp_path / "one")
    later = look(index)
    gone = later.since(changes["tag"])
    assert gone is not None
    assert (len(gone["rows"]), len(gone["gone"])) == (0, 1)
    both = later.since(first.tag)
    assert both is not None
    assert (len(both["rows"]), len(both["gone"])) == (1, 1)


@pytest.mark.parametrize("tag", ["", "another.1", "x", ".", "another.²", "a.b.c"])
def test_a_tag_of_another_server_gets_everything(make_run: MakeRun, tmp_path: Path, tag: str) -> None:
    make_run("one")
    changes = look(Index(tmp_path)).since(tag)
    assert changes is not None
    assert changes["all"]
    assert len(changes["rows"]) == 1


def test_in_a_hurry_the_small_curves_come_later(
    make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        make_run(f"run-{number}")
    index = Index(tmp_path)
    monkeypatch.setattr(index_module, "PATIENCE", -1.0)
    first = look(index)
    assert [row["spark"] for row in first.to_json()["rows"]] == [[]] * 5
    monkeypatch.setattr(index_module, "PATIENCE", 60.0)
    changes = look(index).since(first.tag)
    assert changes is not None
    assert all(len(row["spark"]) == 16 for row in changes["rows"])
    assert len(changes["rows"]) == 5


def test_what_was_left_in_a_hurry_is_not_forgotten(
    make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run("one")
    index = Index(tmp_path)
    before = rows(index)["one"]["spark"]
    lines = (run.folder / "metrics.jsonl").read_text()
    (run.folder / "metrics.jsonl").write_text(lines.replace('"loss": ', '"loss": 9'))
    monkeypatch.setattr(index_module, "PATIENCE", -1.0)
    assert rows(index)["one"]["spark"] == before
    monkeypatch.setattr(index_module, "PATIENCE", 60.0)
    assert rows(index)["one"]["spark"] > before


def test_many_threads_may_look_while_runs_are_written(make_run: MakeRun, tmp_path: Path) -> None:
    runs = [make_run(f"run-{number}") for number in range(8)]
    index, seen, failures = Index(tmp_path), list[int](), list[Exception]()
    ended = threading.Event()

    def reader() -> None:
        try:
            while not ended.is_set():
                found = look(index)
                seen.append(len(found.entries))
                assert not found.warnings
                json.dumps(found.to_json())
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=reader) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in range(40):
        runs[number % 8].update(total_steps=number)
    ended.set()
    for thread in threads:
        thread.join()
    assert not failures
    assert set(seen) == {8}


def test_a_look_that_waited_has_not_cost_a_core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the watcher of a folder on a busy machine would rest for many times as long as it was kept waiting."""

    def slow(*_: object, **__: object) -> list[object]:
        time.sleep(0.2)
        return []

    monkeypatch.setattr(index_module, "_runs", slow)
    index = Index(tmp_path)
    look(index)
    assert 0 < index.took < 0.1
