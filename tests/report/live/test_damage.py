"""Files that are damaged, huge, odd or hostile: what the index does not let itself be led into."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from manyhands.report.live.detail import Details
from manyhands.report.live.index import Index, Snapshot
from manyhands.report.live.values import encode
from manyhands.runs import record_schema

MakeRun = Any
NAMES = (
    *("config", "model", "data", "train", "name", "epochs", "batch_size", "plan", "plan_words", "result", "seconds"),
    *(
        "samples_per_s",
        "test_accuracy",
        "final_loss",
        "steps",
        "total_steps",
        "ranks",
        "pid",
        "host",
        "layers",
        "error",
    ),
)


def look(index: Index) -> Snapshot:
    """Look now, however short ago the last look was."""
    index.looked = float("-inf")
    return index.refresh()


def rows(index: Index) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in look(index).to_json()["rows"]}


DAMAGED = {
    "cut": '{"status": "finished", "plan_w',
    "empty": "",
    "a list": "[1, 2]",
    "bytes": b"\xff\xfe\x00",
    "another program's": '{"status": "great"}',
    "no status": '{"plan_words": "plain"}',
    "a status that is none": '{"plan_words": "plain", "status": {"a": 1}}',
    "nested": "[" * 100_000,
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED.keys())
def test_a_damaged_run_is_a_warning_beside_the_others(make_run: MakeRun, tmp_path: Path, content: str | bytes) -> None:
    make_run("good")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "run.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    index = Index(tmp_path)
    assert rows(index).keys() == {"good"}
    (warning,) = index.snapshot.warnings
    assert warning.startswith("bad: run.json ")


ODD = ("NaN", "1e999", "[[]]", '{"a": 1}', "true", f"1{'0' * 400}", '"\\ud800"', '"<script>"', "null")


@pytest.mark.parametrize("part", ["config", "result", "ranks", "layers", "versions", "machine", "created", "error"])
def test_odd_values_are_left_out_one_by_one(make_run: MakeRun, tmp_path: Path, part: str) -> None:
    """All of JSON may stand where something else is expected; the run is shown all the same, in JSON."""
    run = make_run("odd")
    for odd in ODD:
        (run.folder / "run.json").write_text(json.dumps({**run.record, part: "@"}).replace('"@"', odd))
        index = Index(tmp_path)
        (entry,) = look(index).entries.values()
        assert entry.row is not None, odd
        for shown in (index.snapshot.to_json(), Details().of(entry), Details().compared([entry, entry])):
            encode(shown)


def test_odd_figures_are_unknown(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run("odd")
    for odd in ODD:
        result = json.dumps({**run.record, "result": {"samples_per_s": "@", "seconds": {"train": "@"}}})
        (run.folder / "run.json").write_text(result.replace('"@"', odd))
        row = rows(Index(tmp_path))["odd"]
        assert (row["samples_per_s"], row["seconds"]) == (None, None), odd


def test_huge_files_are_not_read(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("good")
    long = make_run("long")
    (tmp_path / "huge").mkdir()
    with (tmp_path / "huge" / "run.json").open("wb") as file:
        file.truncate(17_000_000)
    with (long.folder / "metrics.jsonl").open("r+b") as file:
        file.truncate(3_000_000_000)  # takes no space on the disk
    index = Index(tmp_path)
    assert rows(index).keys() == {"good", "long"}
    assert sorted(index.snapshot.warnings) == [
        "huge: run.json has 17 MB: more than 16 are not read",
        "long: metrics.jsonl has 3,000 MB: what is beyond 64 is not read",
    ]
    detail = Details().of(next(each for each in index.snapshot.entries.values() if each.found.name == "long"))
    assert detail["curve"]["loss"] == []
    assert any("3,000 MB" in words for words in detail["warnings"])


def test_no_link_is_followed(make_run: MakeRun, tmp_path: Path) -> None:
    outside, served = make_run("outside").folder, tmp_path / "served"
    served.mkdir()
    (served / "linked").symlink_to(outside)
    (served / "loop").symlink_to(served)
    (served / "self").symlink_to("self")
    (served / "inside").mkdir()
    (served / "inside" / "up").symlink_to("..")
    (served / "file").mkdir()
    (served / "file" / "run.json").symlink_to(outside / "run.json")
    shutil.copytree(outside, served / "real")
    (served / "real" / "metrics.jsonl").unlink()
    (served / "real" / "metrics.jsonl").symlink_to("/etc/passwd")
    (served / "real" / "log.txt").symlink_to("/etc/passwd")
    index = Index(served)
    assert rows(index).keys() == {"real"}
    assert [warning.split(" ")[0] for warning in index.snapshot.warnings] == [
        "file/run.json",
        "inside/up",
        "linked",
        "loop",
        "self",
    ]
    (entry,) = index.snapshot.entries.values()
    assert "root" not in json.dumps(Details().of(entry))


def test_the_served_folder_itself_may_be_a_link(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("one")
    (tmp_path.parent / f"{tmp_path.name}-link").symlink_to(tmp_path)
    assert rows(Index(tmp_path.parent / f"{tmp_path.name}-link")).keys() == {"one"}


def test_a_pipe_is_no_file_to_wait_for(make_run: MakeRun, tmp_path: Path) -> None:
    one = make_run("one")
    (tmp_path / "pipe").mkdir()
    os.mkfifo(tmp_path / "pipe" / "run.json")
    (one.folder / "metrics.jsonl").unlink()
    os.mkfifo(one.folder / "metrics.jsonl")
    index = Index(tmp_path)
    assert rows(index).keys() == {"one"}
    (entry,) = index.snapshot.entries.values()
    assert Details().of(entry)["curve"]["step"] == []


def test_names_that_are_no_text(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("one").folder.rename(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    index = Index(tmp_path)
    assert rows(index).keys() == {"caf\ufffd"}
    json.dumps(index.snapshot.to_json()).encode()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(record={}, line=1.7976e308, status="running")
@given(record=st.dictionaries(st.sampled_from(NAMES), JSON), line=JSON, status=st.sampled_from(record_schema.STATUSES))
def test_no_file_breaks_the_list(tmp_path: Path, record: dict[str, Any], line: Any, status: str) -> None:
    """Whatever JSON run.json, metrics and timelines are, the run is shown or told as damaged."""
    folder = tmp_path / "run"
    folder.mkdir(exist_ok=True)
    (folder / "run.json").write_text(json.dumps({"plan_words": "plain", **record, "status": status}))
    (folder / "metrics.jsonl").write_text(
        f"{json.dumps(line)}\n{json.dumps({'step': line, 'loss': line, 'ms': line})}\n"
    )
    (folder / "timeline.json").write_text(json.dumps({"traceEvents": line}))
    found = Index(tmp_path).refresh()
    (entry,) = found.entries.values()
    assert (entry.row is None) == bool(entry.warnings)
    encode(found.to_json())
    if entry.row:
        encode(Details().of(entry))
        encode(Details().compared([entry]))
