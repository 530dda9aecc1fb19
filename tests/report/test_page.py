"""The page: whole, self-contained, and safe whatever names and values the runs hold."""

import re
from collections import Counter
from html.parser import HTMLParser
from typing import Any

import pytest

from manyhands.report.page import page
from manyhands.report.summary import Group

COMMAND = "manyhands compare convnet --plan plain --plan serial"
VOID = {"meta", "br", "link", "img"}


class Checked(HTMLParser):
    """Tags that open and close in order, their ids, and the text between them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: Counter[str] = Counter()
        self.tags: Counter[str] = Counter()
        self.words: list[str] = []
        self.feed(html)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.ids.update(value for name, value in attrs if name == "id" and value)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.ids.update(value for name, value in attrs if name == "id" and value)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"style", "svg"} & set(self.open):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def checked(html: str) -> Checked:
    found = Checked(html)
    assert not [each for each, count in found.ids.items() if count > 1], "ids are unique"
    assert not re.search(r"\b(nan|inf|None)\b", found.text)
    return found


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
    found = checked(page(groups, COMMAND))
    for words in (
        "serial trained 3.1x as fast as plain PyTorch at 98.1 % against 98.0 % test accuracy.",
        "convnet on digits",
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
    assert found.tags["svg"] == 3


def test_the_page_needs_nothing_else(groups: list[Group]) -> None:
    html = page(groups, COMMAND)
    assert checked(html).tags.keys().isdisjoint({"script", "link", "iframe", "object"})
    assert not re.findall(r'(?:src|[^:]href)="(?!#)[^"]*"|url\((?!#)[^)]*\)|@import', html)


def test_seconds_add_up_with_what_no_phase_accounts_for(groups: list[Group]) -> None:
    # setup 2, search 0.5, eval 1 and 0.5 that nothing tells of, beside 10.2 seconds of training
    assert "0-plain-r0 2.0 0.5 10.2 1.0 0.5 14.2" in checked(page(groups, COMMAND)).text


def test_nothing_that_a_run_holds_can_become_markup(make_run: Any) -> None:
    evil = "<script>alert(1)</script>\"'&$title"
    order: dict[str, Any] = {
        "config": {"model": {"name": evil}, "data": {"name": evil}, "train": {"epochs": 1, "batch_size": 1}},
        "plan": {"axes": [evil], evil: evil, "precision": evil},
        "plan_words": evil,
        "machine": {"system": evil},
        "machine_words": evil,
        "versions": {evil: evil},
        "layers": [{"name": evil, "kind": evil, "parameters": 1, "forward_ms": 1.0, "backward_ms": 1.0}],
        "trials": [{"plan": evil, "step_ms": 1.0, "first_ms": 1.0}],
    }
    runs = make_run("<b>&name", **order), make_run("<i>failed", None, error=evil, **order)
    html = page([Group(evil, runs[:1]), Group(evil, runs[1:])], evil)
    found = checked(html)
    assert found.tags.keys().isdisjoint({"script", "b>&name"})
    assert "<script" not in html
    assert evil in found.text


def test_a_single_run(make_run: Any) -> None:
    found = checked(page([Group("serial", (make_run("only", 900.0),))], COMMAND))
    assert "serial trained 900 samples a second and reached 98.0 % test accuracy." in found.text
    assert "Single runs" not in found.text


def test_runs_that_failed(make_run: Any) -> None:
    groups = [Group("plain", (make_run("a"),)), Group("serial", (make_run("b", None, layers=None, trials=None),))]
    found = checked(page(groups, COMMAND))
    assert "serial: out of memory" in found.text
    assert "Only plain PyTorch finished" in found.text


def test_nothing_finished(make_run: Any) -> None:
    groups = [Group(label, (make_run(label, None, layers=None, samples=None),)) for label in ("plain", "serial")]
    found = checked(page(groups, COMMAND))
    assert "No run finished" in found.text
    assert "Where the seconds went" not in found.text


def test_runs_without_layers(make_run: Any) -> None:
    found = checked(page([Group("plain", (make_run("a", layers=None),))], COMMAND))
    assert "Where a step's time goes" not in found.text
    assert found.tags["svg"] == 2


def test_a_difference_within_noise_is_noted(make_run: Any) -> None:
    def three(label: str, *speeds: float) -> Group:
        return Group(label, tuple(make_run(f"{label}{speed}", speed, 0.9 + speed / 1e5) for speed in speeds))

    found = checked(page([three("plain", 900, 1000, 1100), three("serial", 950, 1050, 1150)], COMMAND))
    assert "The difference in speed is within noise" in found.text
    assert "1,000 ± 100" in found.text
    clear = checked(page([three("plain", 901, 1001, 1101), three("serial", 3000, 3100, 3200)], COMMAND))
    assert "The difference in speed" not in clear.text
