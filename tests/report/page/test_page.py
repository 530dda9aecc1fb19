"""The page: whole, self-contained, and safe whatever names and values the runs hold."""

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from manyhands.report.data.group import Group
from manyhands.report.gather import gather, of_groups
from manyhands.report.page.page import page
from manyhands.timeline import Event, Timeline
from parsed_page import Checked, checked

COMMAND = "manyhands compare convnet --plan plain --plan serial"


def of(groups: Sequence[Group]) -> Checked:
    return checked(of_groups(groups, COMMAND))


@pytest.fixture
def groups(make_run: Any) -> list[Group]:
    bound = "serial,precision=bf16,layout=channels_last"
    other = "serial,precision=fp32,layout=channels_last"
    trials = [
        {"plan": bound, "step_ms": 70.0, "first_ms": 300.0},
        {"plan": other, "step_ms": None, "first_ms": None},
    ]
    serial = {"plan_words": bound, "plan": {"axes": ["serial"], "precision": "bf16"}, "trials": trials}
    return [
        Group("plain", (make_run("0-plain-r0", 1000.0, 0.980),)),
        Group("serial", (make_run("1-serial-r0", 3100.0, 0.981, **serial),)),
    ]


def test_the_page_tells_everything(groups: list[Group]) -> None:
    found = of(groups)
    for words in (
        "serial trained 3.1x as fast as plain PyTorch at 98.1 % against 98.0 % test accuracy.",
        "convnet on digits, trained with plain PyTorch and with serial: 2 runs.",
        "5,120 training samples, 2 epochs, batches of 256.",
        "Single runs",
        "serial bf16 3,100 3.10x 3.3 98.10 1",
        "conv1 Conv2d 320 4.00 10.00 2.5x",
        "flatten Flatten 0 0.00 0.00 –",
        "all 1,610 5.00 12.50 2.5x",
        "precision=bf16 taken 70.0 300 precision=fp32 – –",
        "a CPU, 2 cores, 24 GiB",
        "torch 2.13.0",
        f"Make it again {COMMAND}",
    ):
        assert words in found.text
    assert [len(panel) for panel in found.figures] == [1, 2, 2, 1, 1]  # speed, loss, accuracy, both, layers


def test_the_page_needs_nothing_else_and_lets_nothing_out(groups: list[Group]) -> None:
    html = page(of_groups(groups, COMMAND))
    found = Checked(html)
    assert found.tags.keys().isdisjoint({"link", "iframe", "object", "img", "base", "form"})
    addresses = [value for name, value in found.attributes if name in ("src", "href", "action", "srcset")]
    assert all(value and value.startswith("#part-") for value in addresses)
    style = html[html.index("<style>") : html.index("</style>")]
    assert not re.search(r"url\(|@import", style)
    (policy,) = [value for name, value in found.attributes if name == "content" and "default-src" in (value or "")]
    assert policy
    hashes = [base64.b64encode(hashlib.sha256(each.encode()).digest()).decode() for each in found.scripts[1:]]
    assert len(hashes) == 2
    assert policy.startswith("default-src 'none'; script-src " + " ".join(f"'sha256-{each}'" for each in hashes) + ";")


def test_the_same_runs_give_the_same_page(groups: list[Group]) -> None:
    assert page(of_groups(groups, COMMAND)) == page(of_groups(groups, COMMAND))


def test_seconds_add_up_with_what_no_phase_accounts_for(groups: list[Group]) -> None:
    # setup 2, search 0.5, eval 1 and 0.5 that nothing tells of, beside 10.2 seconds of training
    assert "0-plain-r0 2.0 0.5 10.2 1.0 0.5 14.2" in of(groups).text


def test_nothing_that_a_run_holds_can_become_markup(make_run: Any) -> None:
    evil = "<script>alert(1)</script>\"'&$title"
    order: dict[str, Any] = {
        "config": {"model": {"name": evil}, "data": {"name": evil}, "train": {"epochs": evil, "batch_size": evil}},
        "plan": {"axes": [evil], evil: evil, "precision": evil},
        "plan_words": evil,
        "machine": {"system": evil},
        "machine_words": evil,
        "versions": {evil: evil},
        "command": evil,
        "layers": [{"name": evil, "kind": evil, "parameters": 1, "forward_ms": 1.0, "backward_ms": 1.0}],
        "trials": [{"plan": evil, "step_ms": 1.0, "first_ms": 1.0, "error": evil, "fed": True}],
    }
    runs = make_run("<b>&name", **order), make_run("<i>failed", None, error=evil, **order)
    Timeline.of([Event(evil, evil, evil, 0, 10)]).save(runs[0].folder / "timeline.json")
    report = of_groups([Group(evil, runs[:1]), Group(evil, runs[1:])], evil)
    found = checked(report)
    assert found.tags["script"] == 3
    assert found.tags.keys().isdisjoint({"b>&name", "i>failed"})
    assert evil in found.text
    (label,) = {trace["name"] for trace in found.figures[0][0]["data"]}
    assert label == "&lt;script&gt;alert(1)&lt;/script&gt;\"'&amp;$ti…"
    assert not re.search("[<>&]", found.scripts[0]), "the data stands in the page without a sign of markup"


def test_plotly_finds_no_markup_and_no_template_in_names(make_run: Any) -> None:
    found = of([Group("<a href='http://evil'>x</a> %{x}", (make_run("a"),)), Group("b", (make_run("b"),))])
    told = json.dumps(found.figures)
    assert "<a" not in told
    assert "%{x} " not in told.replace("%{x:", "")


def test_a_single_run(make_run: Any) -> None:
    found = of([Group("serial", (make_run("only", 900.0),))])
    assert "serial trained 900 samples a second and reached 98.0 % test accuracy." in found.text
    assert "Single runs" not in found.text


def test_runs_that_failed(make_run: Any) -> None:
    found = of([Group("plain", (make_run("a"),)), Group("serial", (make_run("b", None, layers=None, trials=None),))])
    assert "serial: out of memory" in found.text
    assert "Only plain PyTorch finished" in found.text


def test_nothing_finished(make_run: Any) -> None:
    found = of([Group(label, (make_run(label, None, layers=None, samples=None),)) for label in ("plain", "serial")])
    assert "No run finished" in found.text
    assert "Where the seconds went" not in found.text


def test_a_run_that_still_goes(make_run: Any) -> None:
    run = make_run("a").update(status="running", result=None)
    assert "1 of the runs had not ended" in of([Group("serial", (run,))]).text


def test_runs_without_layers(make_run: Any) -> None:
    found = of([Group("plain", (make_run("a", layers=None),))])
    assert "Where a step's time goes" not in found.text
    assert len(found.figures) == 3


def test_runs_that_tell_almost_nothing(tmp_path: Path) -> None:
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "run.json").write_text('{"status": "finished", "plan_words": "serial", "result": {"a": 1}}')
    assert "No run finished" in checked(gather([tmp_path], COMMAND)).text


def test_a_difference_within_noise_is_noted(make_run: Any) -> None:
    def three(label: str, *speeds: float) -> Group:
        return Group(label, tuple(make_run(f"{label}{speed}", speed, 0.9 + speed / 1e5) for speed in speeds))

    found = of([three("plain", 900, 1000, 1100), three("serial", 950, 1050, 1150)])
    assert "The difference in speed is within noise" in found.text
    assert "1,000 ± 100" in found.text
    clear = of([three("plain", 901, 1001, 1101), three("serial", 3000, 3100, 3200)])
    assert "The difference in speed" not in clear.text
    assert "3,100 ± 100 against plain PyTorch 1,001 ± 100 samples a second, n = 3 and 3: 26 standard" in clear.text


def test_what_cannot_be_read_is_told_and_left_out(make_run: Any, tmp_path: Path) -> None:
    make_run("good", 900.0)
    make_run("no-timeline")
    for name, file, content in (
        ("torn", "run.json", "{"),
        ("odd", "run.json", '{"status": "finished", "plan_words": "x", "result": {"samples_per_s": "fast"}}'),
        ("no-timeline", "timeline.json", "[1, 2]"),
        ("study", "study.json", '{"study": "x"}'),
    ):
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / file).write_text(content)
    report = gather([tmp_path], COMMAND)
    found = checked(report)
    assert sum(len(row.runs) for row in report.rows) == 2
    assert {folder.name for folder, _ in report.skipped} == {"torn", "odd", "no-timeline", "study"}
    assert "result.samples_per_s is 'fast', not a number" in found.text
    assert "its timeline cannot be read" in found.text


def test_metrics_may_be_anything(make_run: Any) -> None:
    run = make_run("a")
    lines = [
        '{"loss": "x", "ms": []}',
        "[]",
        '{"loss": NaN, "ms": "y"}',
        '{"loss": 1, "ms": 1e999}',
        '{"loss": 2, "ms": 4}',
    ]
    (run.folder / "metrics.jsonl").write_bytes("\n".join(lines).encode() + b"\n\xff\xfe")
    checked(of_groups([Group("a", (run,))], COMMAND))


def test_a_folder_whose_name_is_no_text(make_run: Any) -> None:
    page(of_groups([Group("a", (make_run("a\udcff"),))], COMMAND)).encode()


def test_plans_that_send_tell_how_much(make_run: Any) -> None:
    run = make_run("a")
    result = {**run.result, "sent_bytes_per_step": 2_400_000, "compression_ratio": 2.0, "predicted_step_ms": 71.5}
    found = of([Group("plain", (make_run("b"),)), Group("data:2", (run.update(result=result),))])
    assert "predicted sent a step n" in found.text
    assert "71.50 2.400 MB (1/2.0) 1" in found.text


def test_trials_say_whether_loading_counts(make_run: Any) -> None:
    trials = [
        {"plan": "serial,workers=0", "step_ms": 9.0, "first_ms": 1.0, "fed": False},
        {"plan": "serial,workers=4", "step_ms": 7.0, "first_ms": 2.0, "fed": True, "error": None},
        {"plan": "serial,workers=9", "step_ms": None, "first_ms": None, "fed": True, "error": "no more processes"},
    ]
    found = of([Group("serial", (make_run("a", plan_words="serial,workers=4", trials=trials),))])
    for words in ("workers=0 the step alone 9.0 1", "workers=4 taken with loading 7.0 2", "no more processes"):
        assert words in found.text
