"""CSV: a row a run, and no cell that a spreadsheet would run."""

import csv
from typing import Any

from manyhands.report.data import summary
from manyhands.report.data.group import Group, group
from manyhands.report.text.csv_export import csv_of


def rows_of(groups: list[Group]) -> list[dict[str, str]]:
    return list(csv.DictReader(csv_of(summary.rows(groups)).splitlines()))


def test_a_row_a_run(make_run: Any) -> None:
    config = {"model": {"name": "convnet"}, "data": {"name": "digits"}}
    runs = [
        make_run("a", 1000.0, config={**config, "train": {"epochs": 2, "batch_size": 256, "seed": 7}}),
        make_run("b", None, case="other", config={**config, "train": {"epochs": 3, "batch_size": 64, "seed": 8}}),
    ]
    first, second = rows_of(group(runs))
    expected = {
        "run": "a",
        "case": "plain",
        "plan": "plain,precision=fp32",
        "model": "convnet",
        "data": "digits",
        "seed": "7",
        "status": "finished",
        "epochs": "2",
        "batch_size": "256",
        "samples_per_s": "1000.0",
        "train_seconds": "10.24",
        "test_accuracy": "0.98",
        "val_accuracy": "",
        "final_loss": "",
        "peak_memory_mb": "",
        "sent_bytes_per_step": "",
        "world": "",
        "device": "",
        "machine": "a CPU, 2 cores, 24 GiB",
        "error": "",
        "train.epochs": "2",
        "train.batch_size": "256",
    }
    assert {name: first[name] for name in expected} == expected
    assert (second["case"], second["status"], second["error"]) == ("other", "failed", "out of memory")
    assert second["train.batch_size"] == "64"
    assert "train.seed" not in first


def test_no_text_is_a_formula(make_run: Any) -> None:
    evil = ["=cmd|'/c calc'!A1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"]
    groups = [Group(words, (make_run(str(at), final_loss=-1.0),)) for at, words in enumerate(evil)]
    run = groups[0].runs[0]
    groups[0] = Group(evil[0], (run.update(result={**(run.result or {}), "final_loss": -1.5}, machine_words="=1"),))
    rows = rows_of(groups)
    assert [row["case"] for row in rows] == [*(f"'{words}" for words in evil[:4]), "'=1", "'=1"]
    assert rows[0]["machine"] == "'=1"
    assert rows[0]["final_loss"] == "-1.5", "a number stays a number"


def test_cells_may_hold_separators(make_run: Any) -> None:
    (row,) = rows_of([Group('a,"b"', (make_run("x, y", None, error="one\r\ntwo"),))])
    assert (row["run"], row["case"], row["error"]) == ("x, y", 'a,"b"', "one two")
