"""Runs in a terminal: listed, chosen, shown, and found by their names."""

import json
import math
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from manyhands.runs import run_folder

Manyhands = Callable[..., Any]
BLOCKS = set("▁▂▃▄▅▆▇█")
LAYERS = [
    {"name": "dense", "kind": "Linear", "parameters": 100, "forward_ms": 1.0, "backward_ms": 2.5},
    {"name": "output", "kind": "Linear", "parameters": 10, "forward_ms": 1.0, "backward_ms": 1.5},
]


def make(folder: Path, speed: float | None = 1000.0, accuracy: float = 0.98, **changes: Any) -> run_folder.Run:
    """A run as a training leaves it; without a speed it failed before its first step."""
    folder.mkdir(parents=True)
    order = {
        "config": {"model": {"name": "mlp"}, "data": {"name": "digits"}, "optim": {"lr": 0.01}},
        "plan_words": "serial,precision=fp32",
        "machine_words": "a CPU, 2 cores, 24 GiB",
        "parameters": 110,
        "layers": LAYERS if speed else [],
    }
    run = run_folder.create(folder, {**order, **changes})
    if speed is None:
        return run.update(status="failed", error="out of memory")
    lines: list[dict[str, Any]] = [{"step": n, "loss": 8.0 - n, "lr": 0.01, "ms": 3.0 + n} for n in range(1, 8)]
    lines.append({"step": 7, "epoch": 1, "val_loss": 1.0, "val_accuracy": accuracy})
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    seconds = {"setup": 1.0, "train": 2.0, "eval": 0.01, "total": 3.5}
    result = {"plan": run.plan, "test_accuracy": accuracy, "samples_per_s": speed, "seconds": seconds}
    return run.update(status="finished", result=result)


@pytest.fixture
def three(home: Path) -> Path:
    """Three runs of one's own."""
    make(home / "runs" / "2026-a-first", speed=100.0, accuracy=0.95)
    make(home / "runs" / "2026-b-second", speed=5000.0, accuracy=0.99, case="two ranks")
    make(home / "runs" / "2027-c-third", speed=None)
    return home / "runs"


def names(said: Any) -> list[str]:
    assert said.code == 0, said.err
    return [Path(each["run"]).name for each in said.json["runs"]]


def test_a_table_with_a_curve_in_each_row(manyhands: Manyhands, three: Path) -> None:
    said = manyhands("runs")
    assert said.code == 0
    assert said.err == ""
    first, second, third = (line for line in said.out.splitlines() if line.startswith("202"))
    assert "█▇▆▅▃▂▁" in first
    assert {"5,000", "99.00"} <= set(second.split())
    assert "failed" in third
    assert not BLOCKS & set(third)


def test_the_object_has_what_the_table_has(manyhands: Manyhands, three: Path) -> None:
    said = manyhands("runs", "--json").json
    assert said["damaged"] == []
    second = said["runs"][1]
    assert {key: second[key] for key in ("name", "model", "data", "case", "plan_words", "status", "error")} == {
        "name": "2026-b-second",
        "model": "mlp",
        "data": "digits",
        "case": "two ranks",
        "plan_words": "serial,precision=fp32",
        "status": "finished",
        "error": None,
    }
    assert second["result"]["samples_per_s"] == 5000.0
    assert second["run"] == str(three / "2026-b-second")


def test_filter_sort_and_limit(manyhands: Manyhands, three: Path) -> None:
    assert names(manyhands("runs", "--filter", "accuracy>0.98", "--json")) == ["2026-b-second"]
    assert names(manyhands("runs", "--filter", "optim.lr=0.01", "--filter", "two RANKS", "--json")) == ["2026-b-second"]
    assert names(manyhands("runs", "--sort", "speed", "--reverse", "--limit", 1, "--json")) == ["2026-b-second"]
    assert names(manyhands("runs", "--reverse", "--limit", 2, "--json")) == ["2027-c-third", "2026-b-second"]
    assert names(manyhands("runs", three, "--filter", "status=running", "--json")) == []
    assert f"none of the 3 runs in {three} fits" in manyhands("runs", "--filter", "status=running").out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--sort", "sped"), "--sort: unknown key 'sped': did you mean 'speed'?"),
        (("--filter", "colour=red"), "--filter colour=red: unknown key 'colour'"),
        (("--filter", "optim.rl=1"), "did you mean 'optim.lr'?"),
        (("--limit", "0"), "--limit 0: a whole number, at least 1, is needed"),
        (("--limit", "few"), "--limit few: a whole number"),
    ],
    ids=" ".join,
)
def test_a_wrong_choice_is_refused(manyhands: Manyhands, three: Path, words: tuple[str, ...], told: str) -> None:
    said = manyhands("runs", *words)
    assert said.code == 2
    assert told in said.error
    assert said.out == ""


def test_wrong_words_are_refused_where_there_are_no_runs_too(manyhands: Manyhands) -> None:
    assert "no runs in" in manyhands("runs").out
    assert manyhands("runs", "--sort", "sped").code == 2


def test_a_damaged_run_is_mentioned_once(manyhands: Manyhands, three: Path) -> None:
    (three / "bad").mkdir()
    (three / "bad" / "run.json").write_text("{")
    said = manyhands("runs")
    assert said.code == 0
    (line,) = said.err.splitlines()
    assert f"{three}/bad" in line
    assert "2026-a-first" in manyhands("runs", "--filter", "first").out.replace("\n", "")
    assert manyhands("runs", "--quiet").err == ""
    (damaged,) = manyhands("runs", "--json").json["damaged"]
    assert damaged["run"] == str(three / "bad")
    assert damaged["reason"] in line


def test_names_and_values_are_shown_not_obeyed(manyhands: Manyhands, three: Path) -> None:
    """Markup, emoji codes and a terminal's own commands."""
    make(three / "[red]x[bold]", config={"model": {"name": ":smile:[/bold]"}, "data": {"name": "\x1b[31mred"}})
    for said in (manyhands("runs", "--filter", "x"), manyhands("show", three / "[red]x[bold]")):
        assert said.code == 0, said.err
        assert ":smile:[/bold]" in said.out
        assert "\x1b" not in said.out
    assert "[red]x[bold]: finished" in said.out


def test_numbers_that_json_does_not_have(manyhands: Manyhands, three: Path) -> None:
    run = make(three / "odd")
    text = json.dumps({**run.record, "result": {**run.record["result"], "test_accuracy": math.nan}})
    (run.folder / "run.json").write_text(text)
    (run.folder / "metrics.jsonl").write_text('{"step": 1, "loss": NaN}\n{"step": 2, "loss": Infinity}\n')
    assert manyhands("show", run.folder, "--json").json["curves"] == {
        "loss": {"first": None, "last": None, "best": None}
    }
    assert manyhands("runs", "--filter", "name=odd", "--json").json["runs"][0]["result"]["test_accuracy"] is None
    assert manyhands("show", run.folder).code == 0
    assert manyhands("runs").code == 0


def test_show_draws_the_curves(manyhands: Manyhands, three: Path) -> None:
    said = manyhands("show", three / "2026-a-first")
    assert said.code == 0, said.err
    lines = {line.split("  ")[0]: line.split() for line in said.out.splitlines()}
    assert lines["loss"] == ["loss", "█▇▆▅▃▂▁", "7", "1", "1"]
    assert lines["learning rate"] == ["learning", "rate", "▄▄▄▄▄▄▄", "0.01", "0.01", "–"]
    assert lines["validation accuracy"][2:] == ["▄", *3 * ["95.00", "%"]]
    assert lines["ms a step"][3:] == ["▁▂▃▅▆▇█", "4", "10", "4"]
    for told in ("serial,precision=fp32", "a CPU, 2 cores, 24 GiB", "mlp", "digits", "3.5 (setup 1.0, train 2.0)"):
        assert told in said.out
    assert "2.00x forward" in said.out


def test_show_json(manyhands: Manyhands, three: Path) -> None:
    said = manyhands("show", three / "2026-a-first", "--json").json
    assert said["curves"] == {
        "loss": {"first": 7.0, "last": 1.0, "best": 1.0},
        "lr": {"first": 0.01, "last": 0.01, "best": None},
        "val_accuracy": {"first": 0.95, "last": 0.95, "best": 0.95},
        "ms": {"first": 4.0, "last": 10.0, "best": 4.0},
    }
    assert said["layers"] == LAYERS
    assert said["machine_words"] == "a CPU, 2 cores, 24 GiB"


def test_show_a_run_that_failed(manyhands: Manyhands, three: Path) -> None:
    said = manyhands("show", three / "2027-c-third")
    assert said.code == 0
    assert said.out.startswith("2027-c-third: failed (out of memory)\n")
    assert "serial,precision=fp32" in said.out
    assert "best" not in said.out


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("2026-a-first", "2026-a-first"),
        ("2026-b", "2026-b-second"),
        ("2027", "2027-c-third"),
        ("last", "2027-c-third"),
        ("both/0-plain", "both/0-plain"),
        ("0-pl", "both/0-plain"),
    ],
)
def test_a_run_is_found_by_name(manyhands: Manyhands, three: Path, text: str, found: str) -> None:
    make(three / "both" / "0-plain", created="2025-01-01")
    make(three / "both" / "1-serial", created="2025-01-01")
    assert manyhands("show", text, "--json").json["run"] == str(three / found)


def test_a_path_goes_before_a_name(
    manyhands: Manyhands, three: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path / "here" / "2027")
    monkeypatch.chdir(tmp_path / "here")
    assert manyhands("show", "2027", "--json").json["run"] == "2027"


def test_an_ambiguous_beginning_names_the_matches(manyhands: Manyhands, three: Path) -> None:
    said = manyhands("show", "2026")
    assert said.code == 2
    assert said.error == "'2026' begins the names of 2 runs: 2026-a-first, 2026-b-second; give more of the name"
    for number in range(6):
        make(three / f"2026-{number}")
    assert "8 runs: 2026-0, 2026-1, 2026-2, 2026-3, 2026-4 …;" in manyhands("show", "2026").error


def test_no_such_run(manyhands: Manyhands, home: Path) -> None:
    assert "there is no last run" in manyhands("show", "last").error
    assert manyhands("show", "2031").error.startswith("2031 is not a run")
    assert manyhands("show", "").code == 2


def test_other_commands_find_runs_by_name_too(manyhands: Manyhands, three: Path, tmp_path: Path) -> None:
    assert manyhands("export", "2026-a", "--csv", tmp_path / "m.csv").code == 0
    assert len((tmp_path / "m.csv").read_text().splitlines()) == 8
    assert f"run {three}/2026-b-second has finished" in manyhands("train", "--resume", "2026-b").error
    assert f"{three}/2026-a-first/data.json cannot be read" in manyhands("predict", "2026-a", "x.png").error


def test_version(manyhands: Manyhands) -> None:
    said = manyhands("--version")
    assert said.code == 0
    assert said.out.startswith(f"manyhands {version('manyhands')} (python 3.")
    for words in (("--version", "--json"), ("--json", "--version")):
        told = manyhands(*words)
        assert told.code == 0
        assert (told.json["manyhands"], told.json["torch"]) == (version("manyhands"), version("torch"))


def test_json_stands_behind_the_command(manyhands: Manyhands) -> None:
    said = manyhands("--json", "runs")
    assert said.code == 2
    assert "behind the command" in said.json["error"]
